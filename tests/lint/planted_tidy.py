"""Files that clang-tidy objects to."""

import json
import os

ARGUMENTS = ["@", "@/build"]
CLEAN = {
    ".clang-tidy": "Checks: '-*,bugprone-*,readability-function-size'\n"
                   "CheckOptions:\n"
                   "  - { key: readability-function-size.LineThreshold, value: '80' }\n"
                   "WarningsAsErrors: '*'\n"
                   "HeaderFilterRegex: '.*'\n",
    "api/base/calm.h": "int calm(int x);\n",
    "api/base/calm.c": "#include \"calm.h\"\nint calm(int x) { return x; }\n",
}
VIOLATIONS = {
    "a suspicious statement": {
        "api/base/empty_branch.c": "int f(int x) {\n    if (x)\n        ;\n    return x;\n}\n"},
    "a long function": {
        "api/base/endless.c": "int f(int x) {\n" + "    x++;\n" * 90 + "    return x;\n}\n"},
    "a suspicious macro in a header": {
        "api/base/sloppy.h": "#define SLOPPY(x) x * 2\n",
        "api/base/user.c": "#include \"sloppy.h\"\nint f(int x) { return SLOPPY(x); }\n"},
    "a file that does not compile": {"api/base/torn.c": "int f(\n"},
}


def prepare(root):
    os.makedirs(os.path.join(root, "build"))
    folder = os.path.join(root, "api", "base")
    entries = [{"directory": root, "file": os.path.join(folder, name),
                "arguments": ["cc", "-c", os.path.join(folder, name), "-o", name + ".o"]}
               for name in sorted(os.listdir(folder)) if name.endswith(".c")]
    with open(os.path.join(root, "build", "compile_commands.json"), "w", encoding="ascii") as file:
        json.dump(entries, file)
