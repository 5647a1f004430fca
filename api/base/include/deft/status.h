/* Status codes and the error sentence that goes with them. Installed; part of libdeft's ABI.
 *
 * Every fallible call returns `enum deft_status`. A `struct deft_error *` parameter is optional
 * (NULL is fine) and is written only when the call fails. */
#ifndef DEFT_STATUS_H
#define DEFT_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* name, value, what it means. Values are stable: they travel in messages and logs. */
#define DEFT_STATUS_MAP(X)                                                                         \
    X(OK, 0, "success")                                                                            \
    X(INVALID, 1, "an argument, message or file is malformed")                                     \
    X(NO_MEMORY, 2, "memory could not be allocated")                                               \
    X(LIMIT, 3, "a documented limit would be exceeded")                                            \
    X(STATE, 4, "the call is not allowed in the present state")                                    \
    X(IO, 5, "the operating system or a device reported an error")                                 \
    X(TIMEOUT, 6, "the time allowed has passed")                                                   \
    X(PEER_LOST, 7, "a rank or its host has gone away")                                            \
    X(MISMATCH, 8, "ranks or parts of the system disagree with each other")                        \
    X(NOT_FOUND, 9, "the thing named does not exist")                                              \
    X(UNSUPPORTED, 10, "this build or backend cannot do that")                                     \
    X(CANCELLED, 11, "the operation was stopped on request")                                       \
    X(STORE, 12, "the database reported an error")                                                 \
    X(CLOSED, 13, "the other side has ended the connection")

enum deft_status {
#define DEFT_STATUS_ENUM(name, value, text) DEFT_##name = (value),
    DEFT_STATUS_MAP(DEFT_STATUS_ENUM)
#undef DEFT_STATUS_ENUM
};

#if defined(__GNUC__)
#define DEFT_NODISCARD __attribute__((warn_unused_result))
#define DEFT_PRINTF(format_index, first_index)                                                     \
    __attribute__((format(printf, format_index, first_index)))
#else
#define DEFT_NODISCARD
#define DEFT_PRINTF(format_index, first_index)
#endif

#define DEFT_ERROR_TEXT_BYTES 384

/* One full sentence for a person: what failed, where, what was expected. */
struct deft_error {
    enum deft_status status;
    int32_t backend_code; /* errno, CURLcode, SQLite code, ...; 0 if there is none */
    char text[DEFT_ERROR_TEXT_BYTES];
};

/* For the few calls whose failure changes nothing, such as saying goodbye; say why at the call. */
static inline void deft_ignore(enum deft_status status) {
    (void)status;
}

/* "PEER_LOST" and "a rank or its host has gone away". Never NULL; "UNKNOWN" for a foreign value. */
const char *deft_status_name(enum deft_status status);
const char *deft_status_text(enum deft_status status);

/* Fills `error` (which may be NULL) and returns `status`, so that failing is one statement:
 *     return deft_fail(error, DEFT_INVALID, 0, "merge is %u, but 1..64 is allowed", merge);
 * The text is cut at DEFT_ERROR_TEXT_BYTES - 1 bytes on a UTF-8 boundary. */
enum deft_status deft_fail(struct deft_error *error, enum deft_status status, int32_t backend_code,
                           const char *format, ...) DEFT_PRINTF(4, 5);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
