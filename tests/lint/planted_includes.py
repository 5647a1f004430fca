"""Violations of the direction of dependencies."""

ARGUMENTS = ["@"]
CLEAN = {
    "scheduler_core/include/dsched/plan.h": "#include <stdint.h>\n",
    "scheduler_core/plan.c": "#include <dsched/plan.h>\n#include \"plan_inside.h\"\n",
    "scheduler_core/plan_inside.h": "#include <string.h>\n",
    "api/base/include/deft/status.h": "#include <stdint.h>\n",
    "api/base/clock.h": "#include <time.h>\n",
    "api/wire/wire.h": "#include <dsched/plan.h>\n",
    "api/wire/wire_plan.c": "#include <cjson/cJSON.h>\n#include \"wire.h\"\n",
    "agent/include/deft/deft.h": "#include <deft/status.h>\n",
    "agent/ipc/ipc.h": "#include <deft/status.h>\n",
    "agent/link/link.h": "#include <deft/deft.h>\n",
    "agent/link/link_gloo.cc": "#include <gloo/context.h>\n#include <vector>\n",
    "agent/runtime/runtime.c": "#include \"ipc/ipc.h\"\n#include <dsched/plan.h>\n",
    "agent/daemon/daemon.c": "#include \"ipc/ipc.h\"\n#include \"wire/wire.h\"\n",
    "controller/store/store.h": "#include <stdint.h>\n",
    "controller/store/store_jobs.c": "#include <sqlite3.h>\n#include \"store/store.h\"\n",
    "tests/unit/test_plan.c": "#include <sqlite3.h>\n#include \"controller/store/store.h\"\n",
    # Names in comments and strings include nothing.
    "api/base/buf.c": "/*\n * #include \"wire/wire.h\" is wrong here\n */\n#include <limits.h>\n",
    "scheduler_core/include/dsched/limits.h": "#include <stdint.h>\n",
}
VIOLATIONS = {
    "the scheduling core reads a clock": {"scheduler_core/late.c": "#include <time.h>\n"},
    "the scheduling core knows base": {"scheduler_core/up.c": "#include <deft/status.h>\n"},
    "base knows wire": {"api/base/up.c": "#include \"wire/wire.h\"\n"},
    "the runtime knows wire": {"agent/runtime/up.c": "  #  include \"wire/wire.h\"\n"},
    "the runtime sees inside the core": {"agent/runtime/in.c": "#include \"plan_inside.h\"\n"},
    "the agent knows the controller": {
        "agent/daemon/side.c": "#include \"controller/store/store.h\"\n"},
    "the controller knows the agent": {"controller/side.c": "#include \"ipc/ipc.h\"\n"},
    "ipc knows links": {"agent/ipc/side.c": "#include \"link/link.h\"\n"},
    "SQLite outside the store": {"controller/jobs.c": "#include <sqlite3.h>\n"},
    "cJSON outside wire": {"controller/json.c": "#include <cjson/cJSON.h>\n"},
    "curl in the controller": {"controller/fetch.c": "#include <curl/curl.h>\n"},
    "microhttpd in the agent": {"agent/daemon/web.c": "#include <microhttpd.h>\n"},
    "Gloo in C": {"agent/link/link_other.c": "#include <gloo/context.h>\n"},
    "a library nobody listed": {"api/base/new.c": "#include <openssl/ssl.h>\n"},
    "a header that is not there": {"api/base/lost.c": "#include \"base/lost_header.h\"\n"},
    "a folder nobody listed": {"misc/thing.c": "#include <stdio.h>\n"},
}
