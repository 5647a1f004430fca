#include "http_secret.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <string.h>

#define SECRET_RANDOM_BYTES 32u
static const char secret_prefix[] = "deft_";
static const char secret_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* base64url of whole and half groups, RFC 4648 section 5. */
static void secret_print(const uint8_t bytes[SECRET_RANDOM_BYTES], char *out) {
    uint32_t held = 0;
    unsigned n_bits = 0;
    for (size_t i = 0; i < SECRET_RANDOM_BYTES; i++) {
        held = held << 8 | bytes[i];
        for (n_bits += 8; n_bits >= 6; n_bits -= 6) {
            *out++ = secret_digits[held >> (n_bits - 6) & 63u];
        }
    }
    *out++ = secret_digits[held << (6 - n_bits) & 63u];
    *out = '\0';
}

enum deft_status http_secret_make(char out[HTTP_SECRET_BYTES], struct deft_error *error) {
    uint8_t bytes[SECRET_RANDOM_BYTES];
    int code = gnutls_rnd(GNUTLS_RND_KEY, bytes, sizeof(bytes));
    if (code != 0) {
        return deft_fail(error, DEFT_IO, code, "the system has no random numbers: %s",
                         gnutls_strerror(code));
    }
    memcpy(out, secret_prefix, sizeof(secret_prefix) - 1);
    secret_print(bytes, out + sizeof(secret_prefix) - 1);
    http_secret_wipe(bytes, sizeof(bytes));
    return DEFT_OK;
}

int http_secret_is_text(const char *text) {
    size_t n_prefix = sizeof(secret_prefix) - 1;
    return strlen(text) == HTTP_SECRET_BYTES - 1 && strncmp(text, secret_prefix, n_prefix) == 0 &&
           strspn(text + n_prefix, secret_digits) == HTTP_SECRET_BYTES - 1 - n_prefix;
}

enum deft_status http_secret_hash(const char *secret, size_t n_bytes, uint8_t out[HTTP_SECRET_HASH],
                                  struct deft_error *error) {
    int code = gnutls_hash_fast(GNUTLS_DIG_SHA256, secret, n_bytes, out);
    return code == 0 ? DEFT_OK
                     : deft_fail(error, DEFT_UNSUPPORTED, code, "SHA-256 is not to be had: %s",
                                 gnutls_strerror(code));
}

int http_secret_equal(const uint8_t a[HTTP_SECRET_HASH], const uint8_t b[HTTP_SECRET_HASH]) {
    return gnutls_memcmp(a, b, HTTP_SECRET_HASH) == 0;
}

void http_secret_wipe(void *bytes, size_t n_bytes) {
    gnutls_memset(bytes, 0, n_bytes);
}

uint64_t http_secret_number(void) {
    uint64_t number = 0;
    return gnutls_rnd(GNUTLS_RND_NONCE, &number, sizeof(number)) == 0 ? number : 0;
}
