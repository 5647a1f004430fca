/* Certificates of a server. The TLS itself is libmicrohttpd's over GnuTLS: 1.2 and later. */
#ifndef HTTP_TLS_H
#define HTTP_TLS_H

#include <stdint.h>

#include <deft/status.h>

struct http_tls;

struct http_tls_options {
    const char *cert_file; /* PEM, the server's own certificate first */
    const char *key_file;  /* PEM, unencrypted, not readable or writable for others */
    /* PEM of the authorities that sign clients' certificates, or NULL: clients need none. With it
     * every request but those of open routes needs one. */
    const char *client_ca_file;
};

/* Refuses, with one sentence, files that cannot be read, a key that others may read or that does
 * not belong to the certificate, and certificates that are not valid now. The options' texts are
 * copied. */
DEFT_NODISCARD enum deft_status http_tls_open(const struct http_tls_options *options,
                                              struct http_tls **out, struct deft_error *error);
/* Reads the files again: handshakes from now on use them, connections stay as they are. On failure
 * the old ones stay in use. Any thread. */
DEFT_NODISCARD enum deft_status http_tls_reload(struct http_tls *tls, struct deft_error *error);
/* When the first certificate of the chain in use ends, seconds since 1970. */
int64_t http_tls_expires_s(struct http_tls *tls);
/* After the server has stopped. Takes NULL. */
void http_tls_close(struct http_tls *tls);

#endif
