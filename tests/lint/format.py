#!/usr/bin/env python3
"""All C and C++ files are as clang-format writes them.

usage: format.py ROOT
"""

import os
import subprocess
import sys

import sources


def main():
    root = sys.argv[1]
    files = [f for f in sources.tracked(root) if f.endswith(sources.C_ENDINGS)]
    findings = []
    if files:
        done = subprocess.run(["clang-format", "--dry-run", "--Werror", "--ferror-limit=1", *files],
                              cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              check=False)
        output = done.stdout.decode(errors="replace").splitlines()
        findings = [line for line in output if ": error:" in line]
        if done.returncode and not findings:
            findings = output or [f"clang-format ended with status {done.returncode}"]
    sources.finish("format", findings, len([f for f in files if os.path.getsize(
        os.path.join(root, f))]))


if __name__ == "__main__":
    main()
