#include "client/curl_late.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* One interface, built over OpenSSL and over GnuTLS. */
static const char *const curl_late_names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

/* The library stays when the last client goes: TLS libraries do not survive being unloaded. */
static void *curl_late_load(struct deft_error *error) {
    char reason[160] = "";
    for (size_t i = 0; i < sizeof(curl_late_names) / sizeof(curl_late_names[0]); i++) {
        void *library = dlopen(curl_late_names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (library != NULL) {
            return library;
        }
        if (i == 0) {
            (void)snprintf(reason, sizeof(reason), "%s", dlerror());
        }
    }
    (void)deft_fail(error, DEFT_UNSUPPORTED, 0,
                    "HTTP needs libcurl, which cannot be loaded (package libcurl4): %s", reason);
    return NULL;
}

/* dlsym gives an object pointer; POSIX says that it may be copied into a function pointer. */
static int curl_late_find(void *library, const char *name, void *out_function) {
    void *symbol = dlsym(library, name);
    memcpy(out_function, &symbol, sizeof(symbol));
    return symbol != NULL;
}

enum deft_status curl_late_open(struct curl_late *out, struct deft_error *error) {
    struct curl_late curl = {.library = curl_late_load(error)};
    const char *missing = NULL;
    CURLcode code;
    if (curl.library == NULL) {
        return DEFT_UNSUPPORTED;
    }
#define CURL_LATE_FIND(name)                                                                       \
    if (!curl_late_find(curl.library, "curl_" #name, &curl.name)) {                                \
        missing = "curl_" #name;                                                                   \
    }
    CURL_LATE_MAP(CURL_LATE_FIND)
#undef CURL_LATE_FIND
    if (missing != NULL) {
        (void)dlclose(curl.library);
        return deft_fail(error, DEFT_UNSUPPORTED, 0,
                         "libcurl has no %s; version 7.85 or later is expected", missing);
    }
    code = curl.global_init(CURL_GLOBAL_DEFAULT);
    if (code != CURLE_OK) {
        enum deft_status status = deft_fail(error, DEFT_IO, (int32_t)code,
                                            "libcurl cannot start: %s", curl.easy_strerror(code));
        (void)dlclose(curl.library);
        return status;
    }
    *out = curl;
    return DEFT_OK;
}

void curl_late_close(struct curl_late *curl) {
    if (curl->library != NULL) {
        curl->global_cleanup();
        (void)dlclose(curl->library);
        *curl = (struct curl_late){0};
    }
}
