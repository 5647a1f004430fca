#!/usr/bin/env python3
"""CMake files list their sources by name, and every C file of ours is compiled by the build.

usage: cmake_lists.py ROOT [BUILD_DIR]

Without BUILD_DIR (a folder with compile_commands.json) only the CMake files are read.
"""

import json
import os
import re
import sys

import sources

BY_PATTERN = re.compile(r"\bfile\s*\(\s*GLOB|\baux_source_directory\s*\(", re.IGNORECASE)
# Built by an outside project in the installation tests.
NOT_OURS = ("tests/install/",)
# Folders that a build leaves out when their library is missing.
OPTIONAL = {"agent/link/gloo": "Gloo", "agent/examples/": "OpenBLAS", "slurm/plugin/": "Slurm"}


def check_patterns(root, files):
    findings = []
    for path in filter(sources.is_cmake, files):
        for number, line in enumerate(sources.read(root, path).splitlines(), 1):
            if BY_PATTERN.search(line.split("#")[0]):
                findings.append(f"{path}:{number}: list the files by name")
    return findings


def check_compiled(root, build, files):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        compiled = {os.path.relpath(os.path.join(c["directory"], c["file"]), root)
                    for c in json.load(file)}
    findings = []
    for path in files:
        if not path.endswith((".c", ".cc")) or path.startswith(NOT_OURS) or path in compiled:
            continue
        left_out = [o for o in OPTIONAL if path.startswith(o)]
        if left_out and not any(c.startswith(left_out[0]) for c in compiled):
            continue
        findings.append(f"{path}: no CMakeLists.txt of the build compiles it")
    return findings


def main():
    root = os.path.realpath(sys.argv[1])
    files = sources.tracked(root)
    findings = check_patterns(root, files)
    if len(sys.argv) > 2:
        findings += check_compiled(root, sys.argv[2], files)
    sources.finish("cmake_lists", findings, sum(map(sources.is_cmake, files)))


if __name__ == "__main__":
    main()
