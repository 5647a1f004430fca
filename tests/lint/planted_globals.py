"""Libraries with mutable state, and two that define one name."""

import os
import subprocess

ARGUMENTS = ["@/libplanted.a", "--", "@/libother.a"]
CLEAN = {
    "constant.c": "static const char *const names[] = {\"a\", \"b\"};\n"
                  "const char *name(int i) { return names[i]; }\n"
                  "extern int (*const table[])(int);\n"
                  "static int one(int x) { return x; }\n"
                  "int (*const table[])(int) = {one};\n",
    "other/program.c": "static int asked; int ask(void) { return ++asked; }\n",
}
VIOLATIONS = {
    "zeroed state": {"counter.c": "int next(void) { static int n; return ++n; }\n"},
    "initialised state": {"start.c": "int begin = 7;\n"},
    "a table that may change": {"table.c": "const char *kinds[] = {\"a\"};\n"},
    "state per thread": {"local.c": "static _Thread_local int n; int next(void) { return ++n; }\n"},
    "a name of another library": {"other/same.c": "int name(int i) { return i; }\n"},
}
NAMED = {"zeroed state": "counter.o", "initialised state": "begin", "state per thread": "local.o",
         "a table that may change": "kinds", "a name of another library": "name is defined"}


def prepare(root):
    for folder, archive in ((root, "libplanted.a"), (os.path.join(root, "other"), "libother.a")):
        sources = sorted(f for f in os.listdir(folder) if f.endswith(".c"))
        objects = [f[:-2] + ".o" for f in sources]
        subprocess.run(["cc", "-O1", "-fPIC", "-c", *sources], cwd=folder, check=True)
        subprocess.run(["ar", "rcs", os.path.join(root, archive), *objects], cwd=folder, check=True)
