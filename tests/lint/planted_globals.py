"""Libraries with mutable state."""

import os
import subprocess

ARGUMENTS = ["@/libplanted.a"]
CLEAN = {
    "constant.c": "static const char *const names[] = {\"a\", \"b\"};\n"
                  "const char *name(int i) { return names[i]; }\n"
                  "extern int (*const table[])(int);\n"
                  "static int one(int x) { return x; }\n"
                  "int (*const table[])(int) = {one};\n",
}
VIOLATIONS = {
    "zeroed state": {"counter.c": "int next(void) { static int n; return ++n; }\n"},
    "initialised state": {"start.c": "int begin = 7;\n"},
    "a table that may change": {"table.c": "const char *kinds[] = {\"a\"};\n"},
    "state per thread": {"local.c": "static _Thread_local int n; int next(void) { return ++n; }\n"},
}
NAMED = {"zeroed state": "counter.o", "initialised state": "begin", "state per thread": "local.o",
         "a table that may change": "kinds"}


def prepare(root):
    sources = sorted(f for f in os.listdir(root) if f.endswith(".c"))
    subprocess.run(["cc", "-O1", "-fPIC", "-c", *sources], cwd=root, check=True)
    objects = [f[:-2] + ".o" for f in sources]
    subprocess.run(["ar", "rcs", "libplanted.a", *objects], cwd=root, check=True)
