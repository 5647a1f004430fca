#!/usr/bin/env python3
"""File length, line length, unique file stems, whitespace.

usage: layout.py ROOT
"""

import os
import sys

import sources

MAX_LINES = 600
MAX_COLUMNS = 100
SHARED_STEMS = {"main"}  # holds nothing but static symbols and main
TEXT_ENDINGS = (".md", ".json", ".yaml", ".yml", ".sql", ".in", ".map", ".toml")


def is_code(root, path):
    return (path.endswith(sources.C_ENDINGS + (".sql",)) or sources.is_cmake(path)
            or sources.is_shell(root, path) or sources.is_python(root, path))


def check_code(path, lines):
    findings = []
    if len(lines) > MAX_LINES:
        findings.append(f"{path}: {len(lines)} lines, at most {MAX_LINES} are allowed")
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS:
            findings.append(f"{path}:{number}: {len(line)} columns, at most {MAX_COLUMNS}")
    return findings


def check_whitespace(path, text):
    findings = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.rstrip(" \t\r") != line and not path.endswith(".md"):
            findings.append(f"{path}:{number}: blanks at the end of the line")
    if text and not text.endswith("\n"):
        findings.append(f"{path}: the last line has no end")
    return findings


def check_stems(files):
    """Symbol prefixes are file stems, so two equal stems would share a prefix.

    A file behind a public header (include/dsched/plan.h) has the library's prefix in front.
    """
    findings = []
    owners = {}
    public = {(os.path.dirname(f).split("/include/")[0], os.path.basename(f)[:-2]): f
              for f in files if "/include/" in f and f.endswith(".h")}
    for path in files:
        if not path.endswith((".c", ".cc")) or path.startswith("tests/"):
            continue
        stem = os.path.splitext(os.path.basename(path))[0]
        header = public.get((os.path.dirname(path), stem))
        prefix = f"{os.path.basename(os.path.dirname(header))}_{stem}" if header else stem
        if prefix in SHARED_STEMS:
            continue
        if owners.setdefault(prefix, path) != path:
            findings.append(f"{path}: {owners[prefix]} has the same stem, so also its prefix")
    return findings


def main():
    root = sys.argv[1]
    files = sources.tracked(root)
    findings = check_stems(files)
    n_files = 0
    for path in files:
        code = is_code(root, path)
        if not code and not path.endswith(TEXT_ENDINGS):
            continue
        n_files += 1
        text = sources.read(root, path)
        findings += check_whitespace(path, text)
        if code:
            findings += check_code(path, text.splitlines())
    sources.finish("layout", findings, n_files)


if __name__ == "__main__":
    main()
