#include "link/library.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *library_try(const char *name, int flags) {
    return dlopen(name, RTLD_NOW | RTLD_LOCAL | flags);
}

enum deft_status library_open(const char *what, const char *variable, const char *const *names,
                              struct library *out, struct deft_error *error) {
    const char *wished = getenv(variable);
    const char *only[] = {wished, NULL};
    const char *const *tried = wished != NULL && wished[0] != '\0' ? only : names;
    for (int flags = RTLD_NOLOAD;; flags = 0) {
        for (size_t i = 0; tried[i] != NULL; i++) {
            void *handle = library_try(tried[i], flags);
            if (handle != NULL) {
                out->handle = handle;
                (void)snprintf(out->path, sizeof(out->path), "%s", tried[i]);
                return DEFT_OK;
            }
        }
        if (flags == 0) {
            break;
        }
    }
    const char *words = dlerror();
    return deft_fail(error, DEFT_UNSUPPORTED, 0,
                     "%s cannot be loaded: %.160s (install it, or set %s to its path)", what,
                     words != NULL ? words : tried[0], variable);
}

enum deft_status library_bind(const struct library *library, const struct library_symbol *symbols,
                              size_t n, void *table, struct deft_error *error) {
    for (size_t i = 0; i < n; i++) {
        void *address = dlsym(library->handle, symbols[i].name);
        if (address == NULL) {
            return deft_fail(error, DEFT_UNSUPPORTED, 0,
                             "%s has no %s: it is older than this version of libdeft needs",
                             library->path, symbols[i].name);
        }
        memcpy((uint8_t *)table + symbols[i].offset, &address, sizeof(address));
    }
    return DEFT_OK;
}
