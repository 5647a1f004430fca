"""The files of the repository, and how a lint reports what it finds in them."""

import os
import re
import subprocess
import sys

C_ENDINGS = (".c", ".h", ".inc", ".cc", ".hpp", ".cu")


def tracked(root):
    """Relative paths of all files under version control that exist, sorted.

    Without version control (an unpacked archive) everything outside build folders counts.
    """
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if listing.returncode == 0:
        names = listing.stdout.decode().split("\0")
    else:
        names = []
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders if f not in (".git", "build", "dist", "node_modules")]
            names += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    found = sorted(n for n in names if n and os.path.isfile(os.path.join(root, n)))
    if not found:
        sys.exit(f"{root} holds no files to check")
    return found


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def is_script(root, path, names):
    """Whether the first line hands the file to one of the named interpreters."""
    with open(os.path.join(root, path), "rb") as file:
        first = file.readline(128)
    return first.startswith(b"#!") and any(re.search(rb"[/ ]%s\b" % n, first) for n in names)


def is_shell(root, path):
    return path.endswith(".sh") or is_script(root, path, (b"sh", b"bash"))


def is_python(root, path):
    return path.endswith(".py") or is_script(root, path, (b"python3",))


def is_cmake(path):
    return path.endswith(".cmake") or os.path.basename(path) == "CMakeLists.txt"


C_NOISE = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'", re.DOTALL)


def without_comments_and_strings(text):
    """C source with comments and literals blanked, so that line numbers stay."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group())
    return C_NOISE.sub(blank, text)


def finish(name, findings, n_checked):
    """Prints the findings and ends the process: 0 without findings, 1 with."""
    for finding in findings:
        print(finding)
    if n_checked == 0:
        print(f"{name}: nothing was there to check")
        sys.exit(1)
    print(f"{name}: {n_checked} checked, {len(findings)} findings")
    sys.exit(1 if findings else 0)
