"""Violations of the lists of banned calls."""

ARGUMENTS = ["@"]
CLEAN = {
    "api/base/buf.c": "/* strcpy(a, b) in a comment */\n"
                      "const char *buf_text = \"strcpy(a, b)\"; // strtok(a, b)\n"
                      "int buf_use(struct buf *b) { return b->system(1) + my_strcpy(2); }\n",
    "controller/main.c": "int main(void) { printf(\"ready\"); exit(1); }\n",
    "agent/link/link_mem.c": "void link_mem_abort(struct link *l) { l->ops->abort(l); }\n"
                             "void link_mem_text(FILE *f) { fprintf(f, \"x\"); }\n",
}
VIOLATIONS = {
    "copy without a size": {"api/base/a.c": "void f(void) { strcpy(a, b); }\n"},
    "print without a size": {"tests/unit/b.c": "void f(void) { (void)sprintf (a, \"x\"); }\n"},
    "numbers without checks": {"controller/c.c": "int f(void) { return atoi(a); }\n"},
    "hidden state": {"controller/d.h": "static char *f(void) { return strtok(a, b); }\n"},
    "a shell": {"agent/daemon/e.c": "int f(void) { return system(a); }\n"},
    "unbounded stack": {"scheduler_core/f.c": "void *f(void) { return alloca(n); }\n"},
    "a call behind literals": {"api/cli/g.c": "int f(void) { g(\"\\\"\", '\"'); sscanf(a, b); }\n"},
    "a library prints": {"api/http/h.c": "void f(void) { printf(\"x\"); }\n"},
    "a library prints errors": {"agent/ipc/i.c": "void f(void) { fprintf(stderr, \"x\"); }\n"},
    "a library exits": {"agent/runtime/j.c": "void f(void) { exit(1); }\n"},
    "a library takes signals": {"agent/link/k.c": "void f(void) { sigaction(1, a, b); }\n"},
}
