/* Random secrets and their hashes, by GnuTLS. */
#ifndef HTTP_SECRET_H
#define HTTP_SECRET_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

/* "deft_" and 256 random bits in base64url without padding, and a zero. */
#define HTTP_SECRET_BYTES 49u
#define HTTP_SECRET_HASH  32u

/* DEFT_IO when the system has no randomness. */
DEFT_NODISCARD enum deft_status http_secret_make(char out[HTTP_SECRET_BYTES],
                                                 struct deft_error *error);
/* 1 when the text has the form of a secret, whoever made it. */
int http_secret_is_text(const char *text);
/* SHA-256. A secret of 256 random bits cannot be guessed from its hash, so nothing slower is
 * needed. */
DEFT_NODISCARD enum deft_status http_secret_hash(const char *secret, size_t n_bytes,
                                                 uint8_t out[HTTP_SECRET_HASH],
                                                 struct deft_error *error);
/* 1 when equal, in a time that does not depend on where they differ. */
int http_secret_equal(const uint8_t a[HTTP_SECRET_HASH], const uint8_t b[HTTP_SECRET_HASH]);
/* Overwrites a secret that is not needed any more. */
void http_secret_wipe(void *bytes, size_t n_bytes);
/* A random number that need not be secret for long. 0 when there is no randomness. */
uint64_t http_secret_number(void);

#endif
