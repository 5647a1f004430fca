"""Violations of the limits on files."""

ARGUMENTS = ["@"]
CLEAN = {
    "api/base/full.c": "int x;\n" * 600,
    "api/base/wide.c": "/*" + "x" * 96 + "*/\n",
    "api/cli/main.c": "\n",
    "controller/main.c": "\n",
    "scheduler_core/include/dsched/full.h": "\n",
    "scheduler_core/full.c": "\n",
    "docs/page.md": "x" * 300 + "\n" * 700,
}
VIOLATIONS = {
    "a long file": {"api/base/long.c": "int x;\n" * 601},
    "a long script": {"tests/long.py": "x = 1\n" * 601},
    "a long line": {"controller/broad.h": "\n/*" + "x" * 97 + "*/\n"},
    "a long line of CMake": {"controller/CMakeLists.txt": "#" * 101 + "\n"},
    "two files of one stem": {"controller/wide.c": "\n"},
    "blanks at the end": {"api/base/blank.c": "int x; \n"},
    "no end of the last line": {"api/base/cut.c": "int x;"},
}
