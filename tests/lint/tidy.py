#!/usr/bin/env python3
"""clang-tidy is content with every C and C++ file the build compiles.

usage: tidy.py ROOT BUILD_DIR [--all | PATH...]

The static analyzer, which takes nine tenths of the time, looks at what is shipped, and at tests
with --all, as tests/run --full does, or when they are named.

A file that passed is not looked at again until it, one of our headers it includes, its compile
command, the configuration or clang-tidy itself changes: BUILD_DIR/lint/tidy holds one empty file
per passed state, named by the hash of all that. With PATHs only those files are checked.
"""

import concurrent.futures
import hashlib
import json
import os
import shlex
import subprocess
import sys

import sources

N_WORKERS = 2  # clang-tidy takes half a gigabyte; more at once helps little on small machines


class Job:
    """One file, its compile command, and the hash of everything its result depends on."""

    def __init__(self, root, build, entry, analyzed):
        self.root = root
        self.build = build
        self.file = os.path.realpath(os.path.join(entry["directory"], entry["file"]))
        self.path = os.path.relpath(self.file, root)
        self.checks = []
        if self.path.startswith("tests/") and not analyzed(self.path):
            self.checks = ["--checks=-clang-analyzer-*"]
        self.directory = entry["directory"]
        self.command = entry.get("arguments") or shlex.split(entry["command"])

    def dependencies(self):
        """The file and our headers that it includes, as the compiler sees them; None on errors."""
        command = []
        skip = False
        for word in self.command:
            if not skip and word not in ("-c", "-o"):
                command.append(word)
            skip = word == "-o"
        done = subprocess.run([*command, "-MM", "-MG", "-MF", "-"], cwd=self.directory,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            return None
        names = done.stdout.decode().replace("\\\n", " ").split()[1:]
        paths = (os.path.realpath(os.path.join(self.directory, n)) for n in names)
        return sorted(p for p in paths if os.path.isfile(p))

    def state(self, common):
        names = self.dependencies()
        if names is None:
            return None
        digest = hashlib.sha256(common)
        digest.update(repr(self.command + self.checks).encode())
        for name in names:
            digest.update(name.encode())
            with open(name, "rb") as file:
                digest.update(file.read())
        return digest.hexdigest()

    def run(self):
        """What clang-tidy has to say; "" when it is content."""
        # Flags of gcc that clang does not know are no findings about our code.
        done = subprocess.run(
            ["clang-tidy", "-p", self.build, "--quiet", "--extra-arg=-Wno-unknown-warning-option",
             *self.checks, self.file],
            cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL, check=False)
        output = done.stdout.decode(errors="replace").strip()
        if done.returncode and not output:
            output = done.stderr.decode(errors="replace").strip()
        return output.replace(self.root + "/", "") if done.returncode or output else ""


def jobs(root, build, wanted, analyzed):
    ours = set(sources.tracked(root))
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    unique = {}
    for entry in entries:
        job = Job(root, build, entry, analyzed)
        if job.path in ours and (not wanted or job.path in wanted):
            unique.setdefault(job.path, job)
    return [unique[path] for path in sorted(unique)]


def check(job, common, passed, known):
    state = job.state(common)
    if state is not None and state in known:
        return state, ""
    output = job.run()
    if not output and state is not None:
        with open(os.path.join(passed, state), "w", encoding="ascii"):
            pass
    return state, output


def main():
    root = os.path.realpath(sys.argv[1])
    build = os.path.realpath(sys.argv[2])
    is_all = sys.argv[3:] == ["--all"]
    wanted = set() if is_all else set(sys.argv[3:])
    passed = os.path.join(build, "lint", "tidy-all" if is_all else "tidy")
    os.makedirs(passed, exist_ok=True)
    known = set(os.listdir(passed))
    version = subprocess.run(["clang-tidy", "--version"], stdout=subprocess.PIPE, check=True).stdout
    common = version + sources.read(root, ".clang-tidy").encode()
    all_jobs = jobs(root, build, wanted, lambda path: is_all or path in wanted)
    with concurrent.futures.ThreadPoolExecutor(N_WORKERS) as workers:
        results = list(workers.map(lambda job: check(job, common, passed, known), all_jobs))
    if not wanted:
        for stale in known - {state for state, _ in results}:
            os.remove(os.path.join(passed, stale))
    n_looked_at = sum(state not in known for state, _ in results)
    print(f"tidy: {n_looked_at} of {len(all_jobs)} files are new or changed")
    sources.finish("tidy", [output for _, output in results if output], len(all_jobs))


if __name__ == "__main__":
    main()
