"""Sources found by pattern, and sources that no build file names."""

import json
import os

ARGUMENTS = ["@", "@/build"]
CLEAN = {
    "CMakeLists.txt": "# file(GLOB x) is not allowed\nadd_library(x a.c)\n",
    "api/base/a.c": "int a;\n",
    "tests/install/consumer/outside.c": "int main(void) { return 0; }\n",
    "agent/examples/trainer.c": "int main(void) { return 0; }\n",
}
VIOLATIONS = {
    "a pattern": {"cmake/found.cmake": "file(GLOB sources *.c)\n"},
    "a pattern over two lines": {"cmake/folded.cmake": "FILE( GLOB_RECURSE\n  sources *.c)\n"},
    "a folder": {"api/CMakeLists.txt": "aux_source_directory(. sources)\n"},
    "a file that is not built": {"api/base/forgotten.c": "int b;\n"},
}


def prepare(root):
    os.makedirs(os.path.join(root, "build"))
    with open(os.path.join(root, "build", "compile_commands.json"), "w", encoding="ascii") as file:
        json.dump([{"directory": root, "file": "api/base/a.c", "command": "cc -c a.c"}], file)
