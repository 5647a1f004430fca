#!/usr/bin/env python3
"""Proves that a lint finds what it is there to find, and nothing in clean files.

usage: selftest.py LINT

For each case a small tree is made: the clean files, then the same with one violation planted. The
lint must pass the first and name the planted file in the second.
"""

import importlib
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))


def write(root, files):
    for path, text in files.items():
        full = os.path.join(root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)
        if text.startswith("#!") and "not executable" not in text:
            os.chmod(full, 0o755)


def run(lint, root, arguments):
    done = subprocess.run(
        [sys.executable, "-B", os.path.join(HERE, lint + ".py"),
         *[a.replace("@", root) for a in arguments]],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        # A tree inside a checkout must be listed as it is, not as the checkout's files.
        env={**os.environ, "GIT_CEILING_DIRECTORIES": os.path.dirname(root)})
    return done.returncode, done.stdout.decode(errors="replace")


def attempt(lint, case, files, arguments, prepare):
    with tempfile.TemporaryDirectory() as root:
        root = os.path.realpath(root)
        write(root, files)
        if prepare:
            prepare(root)
        return (case, *run(lint, root, arguments))


def main():
    lint = sys.argv[1]
    planted = importlib.import_module("planted_" + lint)
    prepare = getattr(planted, "prepare", None)
    failures = []
    _, status, output = attempt(lint, "clean", planted.CLEAN, planted.ARGUMENTS, prepare)
    if status != 0:
        failures.append(f"clean files: ended with {status}\n{output}")
    _, status, output = attempt(lint, "empty", {"nothing.bin": "\0"}, planted.ARGUMENTS, None)
    if status == 0:
        failures.append(f"nothing to check counts as success\n{output}")
    for case, files in planted.VIOLATIONS.items():
        _, status, output = attempt(lint, case, {**planted.CLEAN, **files}, planted.ARGUMENTS,
                                    prepare)
        name = planted.NAMED.get(case) if hasattr(planted, "NAMED") else None
        name = name or os.path.basename(next(iter(files)))
        if status != 1 or name not in output:
            failures.append(f"{case}: ended with {status}, and should have named {name}\n{output}")
    for failure in failures:
        print(failure)
    print(f"{lint}: {len(planted.VIOLATIONS)} planted violations, {len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
