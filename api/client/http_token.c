#include "client/http_token.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int http_token_is_one(const char *token) {
    size_t n = 0;
    while (token[n] > 0x20 && token[n] < 0x7f) {
        n++;
    }
    return n > 0 && n < HTTP_TOKEN_BYTES && token[n] == '\0';
}

enum deft_status http_token_read(const char *path, char out[HTTP_TOKEN_BYTES],
                                 struct deft_error *error) {
    static const char blank[] = " \t\r\n";
    char text[HTTP_TOKEN_BYTES + 64];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    int code = errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    if (got < 0) {
        return deft_fail(error, DEFT_IO, code, "the token file '%.250s' cannot be read: %s", path,
                         strerrordesc_np(code));
    }
    text[got] = '\0';
    char *token = text + strspn(text, blank);
    token[strcspn(token, blank)] = '\0';
    if (!http_token_is_one(token)) {
        return deft_fail(error, DEFT_INVALID, 0, "the file '%.250s' holds no token", path);
    }
    memcpy(out, token, strlen(token) + 1);
    return DEFT_OK;
}
