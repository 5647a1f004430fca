#!/usr/bin/env python3
"""Text that does not belong into the repository: notes to self, paths and hosts of one machine.

usage: words.py ROOT
"""

import os
import re
import sys

import sources

RULES = (
    (re.compile(r"\b(TO[D]O|FIX[M]E|X[X]X|HA[C]K)\b"), "finish it or describe it in an issue"),
    (re.compile(r"(?<![\w.}):-])/(work|root|home|Users)/\w"), "a path of one machine"),
    (re.compile(r"\b(registry\.npmjs\.org|pypi\.org|proxy\.golang\.org|crates\.io"
                r"|deb\.debian\.org|docker\.io|ghcr\.io|quay\.io|registry\.k8s\.io)\b"),
     "the host of a registry: it is the user's to choose"),
    (re.compile(r"^(<{7}|>{7}|={7})( |$)"), "an unresolved merge"),
)
MAX_BYTES = 2 << 20  # larger files are data


def main():
    root = sys.argv[1]
    findings = []
    n_files = 0
    for path in sources.tracked(root):
        if path == "LICENSE" or os.path.getsize(os.path.join(root, path)) > MAX_BYTES:
            continue
        text = sources.read(root, path)
        if "\0" in text:
            continue
        n_files += 1
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, reason in RULES:
                if pattern.search(line):
                    findings.append(f"{path}:{number}: {pattern.search(line).group()}: {reason}")
    sources.finish("words", findings, n_files)


if __name__ == "__main__":
    main()
