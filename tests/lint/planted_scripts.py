"""Scripts that do not parse, are careless, or cannot be executed."""

ARGUMENTS = ["@"]
CLEAN = {
    "scripts/good": "#!/usr/bin/env bash\nset -eu\necho \"$1\"\n",
    "scripts/good.py": "print(1)\n",
}
VIOLATIONS = {
    "shell that does not parse": {"scripts/torn": "#!/bin/bash\nif true; then\n"},
    "shell that splits words": {"scripts/careless.sh": "#!/bin/sh\nrm $1\n"},
    "Python that does not parse": {"tests/torn.py": "def f(:\n"},
    "a script that is not executable": {"scripts/still": "#!/bin/sh\n# not executable\ntrue\n"},
}
