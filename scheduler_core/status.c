#include <dsched/status.h>

const char *dsched_status_name(enum dsched_status status) {
    switch (status) {
#define DSCHED_STATUS_NAME(name, value, text)                                                      \
    case DSCHED_##name:                                                                            \
        return #name;
        DSCHED_STATUS_MAP(DSCHED_STATUS_NAME)
#undef DSCHED_STATUS_NAME
    }
    return "UNKNOWN";
}
