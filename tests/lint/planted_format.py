"""Files that clang-format would change."""

ARGUMENTS = ["@"]
CLEAN = {
    ".clang-format": "BasedOnStyle: LLVM\nIndentWidth: 4\n"
                     "AllowShortFunctionsOnASingleLine: Empty\n",
    "api/base/tidy.c": "int f(void) {\n    return 1;\n}\n",
}
VIOLATIONS = {
    "other indentation": {"api/base/shifted.c": "int f(void) {\n  return 1;\n}\n"},
    "other blanks in a header": {"api/base/loose.h": "int  f( void );\n"},
    "other blanks in C++": {"agent/link/loose.cc": "int  f( );\n"},
}
