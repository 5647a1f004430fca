#!/usr/bin/env python3
"""Relative links between pages lead to files of the repository.

usage: links.py ROOT
"""

import os
import re
import sys

import sources

LINK = re.compile(r"\]\(([^)\s]+)\)")
ELSEWHERE = re.compile(r"^[a-z]+:|^#")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def main():
    root = sys.argv[1]
    files = set(sources.tracked(root))
    folders = {os.path.dirname(f) for f in files}
    findings = []
    pages = [f for f in files if f.endswith(".md")]
    for page in sorted(pages):
        text = CODE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), sources.read(root, page))
        for match in LINK.finditer(text):
            target = match.group(1).split("#")[0]
            if ELSEWHERE.match(match.group(1)):
                continue
            path = os.path.normpath(os.path.join(os.path.dirname(page), target))
            if path not in files and path not in folders:
                line = text.count("\n", 0, match.start()) + 1
                findings.append(f"{page}:{line}: {target} is not there")
    sources.finish("links", findings, len(pages))


if __name__ == "__main__":
    main()
