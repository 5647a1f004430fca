#!/usr/bin/env python3
"""Global names of our static libraries: no mutable state, and no name twice.

usage: globals.py LIBRARY... [-- ARCHIVE...]

Reads symbol tables. An object in a writable section of a library is a finding; constant tables with
relocations (.data.rel.ro) are fine, and so is what the C++ compiler adds to a shim. A name that two
objects define is a finding as well, since a linker silently takes either; ARCHIVEs, the parts of
programs, are only asked for that.
"""

import os
import re
import subprocess
import sys

import sources

WRITABLE = re.compile(r"^\.(data|bss|tdata|tbss)(?!\.rel\.ro)|^\*COM\*$")
OBJECT = re.compile(r"^[0-9a-f]+ (.{7}) (\S+)\s+([0-9a-f]+)(?: \.hidden)? (\S+)$")
MEMBER = re.compile(r"^(\S+):\s+file format ")


def symbols(archive):
    """(member, flags, section, size, name) of each symbol."""
    done = subprocess.run(["objdump", "-t", archive], stdout=subprocess.PIPE, check=True)
    member = "?"
    for line in done.stdout.decode().splitlines():
        new_member = MEMBER.match(line)
        symbol = OBJECT.match(line)
        if new_member:
            member = f"{os.path.basename(archive)}({new_member.group(1)})"
        elif symbol:
            flags, section, size, name = symbol.groups()
            yield member, flags, section, int(size, 16), name


def mutable(archive):
    findings = []
    for member, flags, section, size, name in symbols(archive):
        is_object = flags[6] in "O " and flags[5] != "d" and not member.endswith(".cc.o)")
        if is_object and size > 0 and WRITABLE.match(section):
            findings.append(f"{member}: {name} is mutable and global")
    return findings


def doubled(archives):
    findings = []
    owners = {}
    for archive in archives:
        for member, flags, section, _, name in symbols(archive):
            if flags[0] != "g" or section == "*UND*":
                continue
            if owners.setdefault(name, member) != member:
                findings.append(f"{member}: {name} is defined by {owners[name]} too")
    return findings


def main():
    libraries = sys.argv[1:]
    programs = []
    if "--" in libraries:
        at = libraries.index("--")
        libraries, programs = libraries[:at], libraries[at + 1:]
    everything = libraries + programs
    findings = [f"{a} was not built" for a in everything if not os.path.isfile(a)]
    if not findings:
        findings = [f for a in libraries for f in mutable(a)] + doubled(everything)
    sources.finish("globals", findings, len(everything))


if __name__ == "__main__":
    main()
