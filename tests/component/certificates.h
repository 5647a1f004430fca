/* Certificates for tests, made on the spot: authorities, servers and clients, good and bad. */
#ifndef CERTIFICATES_H
#define CERTIFICATES_H

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

struct certificate {
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t crt;
};
struct certificate_wish {
    const struct certificate *issuer; /* NULL: signs itself and may sign others */
    const char *name;                 /* common name */
    const char *address;              /* "127.0.0.1", a name, or NULL: for a client */
    int begin_s;                      /* from now, negative: before */
    int end_s;
};
void certificate_make(const struct certificate_wish *wish, struct certificate *out);
void certificate_done(struct certificate *certificate);

/* Writes PEM files, replacing what is there in one piece; `path` NULL: not. The key gets mode 0600.
 */
void certificate_write(const struct certificate *certificate, const char *crt_path,
                       const char *key_path);

#endif
