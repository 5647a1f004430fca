/* Status of the scheduling library, which depends on libc alone. */
#ifndef DSCHED_STATUS_H
#define DSCHED_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#define DSCHED_STATUS_MAP(X)                                                                       \
    X(OK, 0, "success")                                                                            \
    X(INVALID, 1, "the input breaks a rule; the error text says which")                            \
    X(NO_MEMORY, 2, "memory could not be allocated")                                               \
    X(LIMIT, 3, "a limit of dsched/limits.h would be exceeded")                                    \
    X(INFEASIBLE, 4, "no plan satisfies the limits that were given")

enum dsched_status {
#define DSCHED_STATUS_ENUM(name, value, text) DSCHED_##name = (value),
    DSCHED_STATUS_MAP(DSCHED_STATUS_ENUM)
#undef DSCHED_STATUS_ENUM
};

#if defined(__GNUC__)
#define DSCHED_NODISCARD __attribute__((warn_unused_result))
#else
#define DSCHED_NODISCARD
#endif

/* One sentence: what, where, what was expected. Written only on failure; may be passed as NULL. */
struct dsched_error {
    char text[320];
};

const char *dsched_status_name(enum dsched_status status);

#ifdef __cplusplus
}
#endif
#endif
