/* What connections take from http_tls. Only for the files of this room. */
#ifndef HTTP_TLS_USE_H
#define HTTP_TLS_USE_H

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>

#include "http_tls.h"

/* Certificate, key and authorities as they were read once; counted, since handshakes may be under
 * way while new ones are read. */
struct http_tls_material;

struct http_tls_material *http_tls_take(struct http_tls *tls);
void http_tls_give(struct http_tls_material *material); /* takes NULL */

/* For a certificate callback; what comes out lives as long as the material. */
void http_tls_chain(const struct http_tls_material *material, gnutls_pcert_st **out_chain,
                    unsigned *out_n, gnutls_privkey_t *out_key);
/* The PEM of the clients' authorities, or NULL when clients need no certificate. */
const char *http_tls_client_ca(const struct http_tls_material *material);
/* 1 when the session's peer has a certificate of these authorities that is valid now and is for
 * clients. */
int http_tls_verify_client(const struct http_tls_material *material, gnutls_session_t session);

#endif
