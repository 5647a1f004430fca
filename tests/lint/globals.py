#!/usr/bin/env python3
"""Our libraries have no mutable state outside what their callers own.

usage: globals.py ARCHIVE...

Reads the symbol tables of static libraries: an object in a writable section is a finding. Constant
tables with relocations (.data.rel.ro) are fine.
"""

import os
import re
import subprocess
import sys

import sources

WRITABLE = re.compile(r"^\.(data|bss|tdata|tbss)(?!\.rel\.ro)|^\*COM\*$")
OBJECT = re.compile(r"^[0-9a-f]+ (.{7}) (\S+)\s+([0-9a-f]+)(?: \.hidden)? (\S+)$")
MEMBER = re.compile(r"^(\S+):\s+file format ")


def check(archive):
    done = subprocess.run(["objdump", "-t", archive], stdout=subprocess.PIPE, check=True)
    findings = []
    member = "?"
    for line in done.stdout.decode().splitlines():
        new_member = MEMBER.match(line)
        if new_member:
            member = new_member.group(1)
            continue
        symbol = OBJECT.match(line)
        if not symbol or symbol.group(1)[6] not in "O " or symbol.group(1)[5] == "d":
            continue
        if WRITABLE.match(symbol.group(2)) and int(symbol.group(3), 16) > 0:
            name = os.path.basename(archive)
            findings.append(f"{name}({member}): {symbol.group(4)} is mutable and global")
    return findings


def main():
    archives = [a for a in sys.argv[1:] if os.path.isfile(a)]
    missing = [f"{a} was not built" for a in sys.argv[1:] if a not in archives]
    findings = missing + [finding for a in archives for finding in check(a)]
    sources.finish("globals", findings, len(archives))


if __name__ == "__main__":
    main()
