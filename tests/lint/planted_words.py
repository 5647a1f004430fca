"""Text that does not belong into the repository. Put together here, since this file is checked."""

ARGUMENTS = ["@"]
CLEAN = {
    "api/base/temporary.c": "char name[] = \"deft-X" + "XXXXX\"; /* a work/folder, ../home/x */\n",
    "docs/page.md": "See https://example.org/home/page and `build/work/x`.\n",
}
VIOLATIONS = {
    "a note to self": {"api/base/a.c": "/* TO" + "DO: finish */\n"},
    "a broken spot": {"docs/b.md": "FIX" + "ME\n"},
    "a folder of one machine": {"scripts/c": "cd /wo" + "rk/main\n"},
    "somebody's home": {"CMakeLists.txt": "set(X \"/ho" + "me/me/lib\")\n"},
    "the host of a registry": {"charts/d.yaml": "image: gh" + "cr.io/x/y\n"},
    "an unresolved merge": {"docs/e.md": "<" * 7 + " HEAD\n"},
}
