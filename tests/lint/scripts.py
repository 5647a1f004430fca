#!/usr/bin/env python3
"""Shell scripts parse and satisfy shellcheck, Python parses, scripts can be executed.

usage: scripts.py ROOT
"""

import ast
import os
import subprocess
import sys

import sources


def run(root, command):
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, check=False)
    return done.returncode, done.stdout.decode(errors="replace").strip()


def check_shell(root, path):
    status, output = run(root, ["bash", "-n", path])
    if status == 0:
        status, output = run(root, ["shellcheck", "--external-sources", "--source-path=SCRIPTDIR",
                                    "--format=gcc", path])
    return [output] if status else []


def check_python(root, path):
    try:
        ast.parse(sources.read(root, path), path)
    except SyntaxError as error:
        return [f"{path}:{error.lineno}: {error.msg}"]
    return []


def check_mode(root, path):
    with open(os.path.join(root, path), "rb") as file:
        has_interpreter = file.read(2) == b"#!"
    may_execute = os.access(os.path.join(root, path), os.X_OK)
    if has_interpreter and not may_execute:
        return [f"{path}: names an interpreter but is not executable"]
    return []


def main():
    root = sys.argv[1]
    findings = []
    n_files = 0
    for path in sources.tracked(root):
        is_shell = sources.is_shell(root, path)
        is_python = not is_shell and sources.is_python(root, path)
        if is_shell or is_python:
            n_files += 1
            findings += check_shell(root, path) if is_shell else check_python(root, path)
            findings += check_mode(root, path)
    sources.finish("scripts", findings, n_files)


if __name__ == "__main__":
    main()
