#!/usr/bin/env python3
"""Calls that no code of ours makes, and calls that no library of ours makes.

usage: banned.py ROOT
"""

import re
import sys

import sources

# Anywhere, tests included: what to do instead.
EVERYWHERE = {
    "strcpy|strcat|stpcpy|strncat": "snprintf with the size of the buffer",
    "sprintf|vsprintf": "snprintf or vsnprintf",
    "gets|sscanf|scanf|fscanf|vsscanf": "a parser that reports what it refused",
    "atoi|atol|atoll|atof": "strtol and its kin with the end checked",
    "strtok|strtok_r": "a loop over memchr: the input stays whole",
    "alloca|strdupa|strndupa": "a bounded array or malloc",
    "tmpnam|tempnam|mktemp": "mkstemp or mkdtemp",
    "system|popen": "posix_spawn with an argument vector",
    "rand|srand|random|srandom|drand48": "a generator whose state is passed in",
    "gethostbyname|gethostbyaddr|inet_ntoa|inet_addr": "getaddrinfo and inet_ntop",
    "localtime|gmtime|asctime|ctime": "the variant with _r",
    "usleep": "wait for the event itself, with a deadline",
}

# Folders whose code runs inside other programs: they never print, exit or take over signals.
LIBRARIES = ("scheduler_core/", "agent/runtime/", "agent/link/", "agent/ipc/", "api/wire/",
             "api/gzip/", "api/http/", "api/client/", "api/kineto/")
IN_LIBRARIES = {
    "printf|vprintf|puts|putchar|perror|syslog|psignal": "return a status and an error sentence",
    "exit|_exit|_Exit|quick_exit|abort|atexit": "return a status",
    "signal|sigaction|sigprocmask|setlocale|setenv|putenv|unsetenv|chdir|umask":
        "leave the process's state to the program",
}
# fprintf to a memory stream is fine, to the program's own streams it is not.
STREAMS = re.compile(r"\b(?:f|vf|d|vd)printf\s*\(\s*(?:stdout|stderr|STD(?:OUT|ERR)_FILENO)\b"
                     r"|\bf(?:puts|putc|write)\s*\([^;]*\b(?:stdout|stderr)\s*\)")


def calls(table):
    # A name behind `.` or `->` is a member, behind an identifier character another name.
    return [(re.compile(rf"(?<![\w.>])(?<!struct )({names})\s*\("), advice)
            for names, advice in table.items()]


def main():
    root = sys.argv[1]
    everywhere = calls(EVERYWHERE)
    in_libraries = calls(IN_LIBRARIES)
    findings = []
    n_files = 0
    for path in sources.tracked(root):
        if not path.endswith(sources.C_ENDINGS):
            continue
        n_files += 1
        is_library = path.startswith(LIBRARIES)
        rules = everywhere + (in_libraries if is_library else [])
        code = sources.without_comments_and_strings(sources.read(root, path))
        for number, line in enumerate(code.splitlines(), 1):
            for pattern, advice in rules:
                for match in pattern.finditer(line):
                    findings.append(f"{path}:{number}: {match.group(1)}(): instead {advice}")
            if is_library and STREAMS.search(line):
                findings.append(f"{path}:{number}: a library never prints")
    sources.finish("banned", findings, n_files)


if __name__ == "__main__":
    main()
