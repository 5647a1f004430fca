#!/usr/bin/env python3
"""Dependencies point one way: which room may include headers of which, and of which library.

usage: includes.py ROOT
"""

import fnmatch
import os
import re
import sys

import sources

# Room: rooms whose headers it may include besides its own. A file belongs to the longest prefix.
PUBLIC = ["api/base/include", "agent/include"]
CORE = ["scheduler_core", "scheduler_core/include"]
BASE = ["api/base", "api/base/include"]
API = BASE + ["api/wire", "api/gzip", "api/http", "api/client", "api/kineto", "api/cli", "api/web"]
ROOMS = {
    "scheduler_core": CORE,
    "scheduler_core/include": [],
    "api/base": BASE,
    "api/base/include": [],
    "api/wire": BASE + ["scheduler_core/include"],
    "api/gzip": BASE,
    "api/http": BASE + ["api/wire", "api/gzip", "scheduler_core/include"],
    "api/client": BASE + ["api/gzip"],
    "api/web": BASE,
    "api/kineto": BASE + ["scheduler_core/include"],
    "api/cli": API + ["scheduler_core/include"],
    "agent/include": PUBLIC,
    "agent/ipc": BASE,
    "agent/link": BASE + PUBLIC,
    "agent/runtime": BASE + PUBLIC + ["agent/ipc", "agent/link", "scheduler_core/include"],
    "agent/daemon": API + PUBLIC + ["agent/ipc", "scheduler_core/include"],
    "agent/examples": BASE + PUBLIC,
    "controller": API + ["controller/tuning", "controller/store", "controller/kube",
                         "scheduler_core/include"],
    "controller/kube": BASE + ["api/wire", "scheduler_core/include"],
    "controller/tuning": BASE + ["api/wire", "scheduler_core/include"],
    "controller/store": BASE + ["api/wire", "scheduler_core/include"],
    "slurm/core": [],
    "slurm/plugin": ["slurm/core"],
    "tests": None,  # everything
}

# Headers of libraries that are not ours: the only files that may include them. The rest of the
# program talks to the library through those files. Tests may look behind any of them.
LIBRARIES = {
    "sqlite3.h": ["controller/store/*"],
    "cjson/*": ["api/wire/*"],
    "cJSON.h": ["api/wire/*"],
    "microhttpd.h": ["api/http/*"],
    "gnutls/*": ["api/http/*"],
    "curl/*": ["api/client/*"],
    "curses.h": ["api/cli/top_screen.c"],
    "gloo/*": ["agent/link/*.cc"],
    "cuda*.h": ["agent/link/cuda_*.h", "agent/link/device_*"],
    "nccl.h": ["agent/link/nccl_api.h"],
    "slurm/*": ["slurm/plugin/*"],
    "cblas.h": ["agent/examples/*"],
    "yajl/*": ["api/kineto/*"],
    "glpk.h": [],
    "zlib.h": ["agent/examples/*", "api/gzip/*", "api/kineto/*", "controller/store/*"],
    "cmocka.h": [],
}

# scheduler_core is pure: no input or output, clock, thread or global state.
PURE = """assert ctype errno float inttypes limits math stdalign stdarg stdbool stddef stdint stdio
    stdlib string""".split()
# The operating system and libc, for the other rooms.
SYSTEM = PURE + """argp complex dirent dlfcn endian err execinfo fcntl fenv fnmatch ftw getopt glob
    grp ifaddrs langinfo libgen limits locale malloc netdb poll pthread pwd sched semaphore setjmp
    signal spawn stdatomic stdio_ext stdnoreturn strings syslog termios threads time unistd wchar
    wctype""".split()
SYSTEM_FOLDERS = ("sys/", "net/", "netinet/", "arpa/", "linux/", "asm/")

INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"\n]+)[>\"]", re.MULTILINE)


def room_of(path):
    rooms = [r for r in ROOMS if path.startswith(r + "/")]
    return max(rooms, key=len, default=None)


def resolve(including, quote, name, headers):
    """The tracked header that `name` means inside `including`, or None."""
    if quote == "<" and not name.startswith(("deft/", "dsched/")):
        return None
    beside = os.path.normpath(os.path.join(os.path.dirname(including), name))
    if beside in headers:
        return beside
    fits = [h for h in headers if h == name or h.endswith("/" + name)]
    same_room = [h for h in fits if room_of(h) == room_of(including)]
    return (same_room or fits or [None])[0]


def library_problem(path, room, name):
    for pattern, allowed in LIBRARIES.items():
        if fnmatch.fnmatchcase(name, pattern):
            if room == "tests" or any(fnmatch.fnmatchcase(path, a) for a in allowed):
                return None
            return f"<{name}> belongs to {', '.join(allowed) or 'tests'} only"
    if path.endswith((".cc", ".hpp", ".cu")) and "." not in name:
        return None  # C++ standard library
    stem = name[:-2] if name.endswith(".h") else name
    if room in CORE:
        return None if stem in PURE else f"<{name}> is neither pure C nor of scheduler_core"
    if stem in SYSTEM or name.startswith(SYSTEM_FOLDERS):
        return None
    return f"<{name}> is not in the table of libraries"


def problem(path, quote, name, headers):
    room = room_of(path)
    if room is None:
        return "this folder has no row in the table of rooms"
    target = resolve(path, quote, name, headers)
    if target is None:
        if quote == '"':
            return f'"{name}" is no header of this repository'
        return library_problem(path, room, name)
    other = room_of(target)
    if ROOMS[room] is None or other == room or other in ROOMS[room]:
        return None
    return f'"{name}" is of {other}, which {room} must not know'


def main():
    root = sys.argv[1]
    files = sources.tracked(root)
    headers = {f for f in files if f.endswith((".h", ".inc", ".hpp"))}
    headers |= {f[:-3] for f in files if f.endswith(".h.in")}
    findings = []
    n_includes = 0
    for path in files:
        # An outside project of the installation tests sees installed headers only.
        if not path.endswith(sources.C_ENDINGS) or path.startswith("tests/install/"):
            continue
        text = sources.read(root, path)
        for match in INCLUDE.finditer(text):
            n_includes += 1
            reason = problem(path, match.group(1), match.group(2), headers)
            if reason:
                line = text.count("\n", 0, match.start()) + 1
                findings.append(f"{path}:{line}: {reason}")
    sources.finish("includes", findings, n_includes)


if __name__ == "__main__":
    main()
