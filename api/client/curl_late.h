/* libcurl, loaded when the first client opens: it pulls thirty libraries in, which costs 2.5 ms at
 * start, and most commands of `deft` never talk to anybody. */
#ifndef CURL_LATE_H
#define CURL_LATE_H

#include <curl/curl.h>

#include <deft/status.h>

/* Functions of libcurl that we use, by their name without "curl_". */
#define CURL_LATE_MAP(X)                                                                           \
    X(global_init)                                                                                 \
    X(global_cleanup)                                                                              \
    X(version)                                                                                     \
    X(free)                                                                                        \
    X(getdate)                                                                                     \
    X(url)                                                                                         \
    X(url_set)                                                                                     \
    X(url_get)                                                                                     \
    X(url_cleanup)                                                                                 \
    X(slist_append)                                                                                \
    X(slist_free_all)                                                                              \
    X(easy_init)                                                                                   \
    X(easy_reset)                                                                                  \
    X(easy_setopt)                                                                                 \
    X(easy_getinfo)                                                                                \
    X(easy_header)                                                                                 \
    X(easy_strerror)                                                                               \
    X(easy_cleanup)                                                                                \
    X(multi_init)                                                                                  \
    X(multi_add_handle)                                                                            \
    X(multi_perform)                                                                               \
    X(multi_poll)                                                                                  \
    X(multi_info_read)                                                                             \
    X(multi_remove_handle)                                                                         \
    X(multi_strerror)                                                                              \
    X(multi_cleanup)

struct curl_late {
    void *library;
#define CURL_LATE_MEMBER(name) __typeof__(curl_##name) *(name);
    CURL_LATE_MAP(CURL_LATE_MEMBER)
#undef CURL_LATE_MEMBER
};

/* Any number of times, from any thread: libcurl counts (thread-safe since 7.84). DEFT_UNSUPPORTED
 * when there is no libcurl or it lacks a function. */
DEFT_NODISCARD enum deft_status curl_late_open(struct curl_late *out, struct deft_error *error);
void curl_late_close(struct curl_late *curl); /* takes zeroed ones */

#endif
