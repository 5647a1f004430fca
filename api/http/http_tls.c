#include "http_tls_use.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <gnutls/x509.h>

/* A chain of eight large certificates has some 20 KiB. */
#define TLS_MAX_FILE_BYTES ((size_t)1 << 20)
#define TLS_MAX_CHAIN      8u

struct http_tls_material {
    atomic_uint references;
    unsigned n_chain;
    gnutls_pcert_st chain[TLS_MAX_CHAIN];
    gnutls_privkey_t key;
    gnutls_x509_trust_list_t authorities; /* NULL: clients need no certificate */
    char *authorities_pem;
    int64_t expires_s;
};

struct http_tls {
    char *cert_file;
    char *key_file;
    char *client_ca_file;
    pthread_mutex_t lock;
    struct http_tls_material *material;
};

static void tls_material_free(struct http_tls_material *material) {
    for (unsigned i = 0; i < material->n_chain; i++) {
        gnutls_pcert_deinit(&material->chain[i]);
    }
    if (material->key != NULL) {
        gnutls_privkey_deinit(material->key);
    }
    if (material->authorities != NULL) {
        gnutls_x509_trust_list_deinit(material->authorities, 1);
    }
    free(material->authorities_pem);
    free(material);
}

struct http_tls_material *http_tls_take(struct http_tls *tls) {
    (void)pthread_mutex_lock(&tls->lock);
    struct http_tls_material *material = tls->material;
    (void)atomic_fetch_add(&material->references, 1);
    (void)pthread_mutex_unlock(&tls->lock);
    return material;
}

void http_tls_give(struct http_tls_material *material) {
    if (material != NULL && atomic_fetch_sub(&material->references, 1) == 1) {
        tls_material_free(material);
    }
}

/* --- files ------------------------------------------------------------------------------------ */

/* The whole file, zero-terminated, malloc'ed. `is_secret`: others must not be able to read it. */
static enum deft_status tls_read_file(const char *path, const char *what, int is_secret, char **out,
                                      struct deft_error *error) {
    struct stat facts;
    enum deft_status status = DEFT_OK;
    char *text = NULL;
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &facts) != 0) {
        status = deft_fail(error, DEFT_IO, errno, "%s '%.200s' cannot be read: %s", what, path,
                           strerrordesc_np(errno));
        goto done;
    }
    if (is_secret && (facts.st_mode & (S_IROTH | S_IWOTH)) != 0) {
        status = deft_fail(error, DEFT_INVALID, 0,
                           "%s '%.200s' may be read or written by every user (mode %04o): "
                           "chmod o-rw it, and take a new key if that may have happened",
                           what, path, (unsigned)facts.st_mode & 07777u);
        goto done;
    }
    text = malloc(TLS_MAX_FILE_BYTES + 1);
    if (text == NULL) {
        status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to read '%.200s'", path);
        goto done;
    }
    for (ssize_t got = 1; got > 0 && n <= TLS_MAX_FILE_BYTES; n += (size_t)(got > 0 ? got : 0)) {
        got = read(fd, text + n, TLS_MAX_FILE_BYTES + 1 - n);
        if (got < 0) {
            status = deft_fail(error, DEFT_IO, errno, "%s '%.200s' cannot be read: %s", what, path,
                               strerrordesc_np(errno));
            goto done;
        }
    }
    if (n > TLS_MAX_FILE_BYTES) {
        status = deft_fail(error, DEFT_LIMIT, 0, "%s '%.200s' has more than %zu bytes", what, path,
                           TLS_MAX_FILE_BYTES);
        goto done;
    }
    text[n] = '\0';
    *out = text;
    text = NULL;
done:
    if (text != NULL) {
        gnutls_memset(text, 0, n);
        free(text);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return status;
}

static gnutls_datum_t tls_datum(const char *text) {
    return (gnutls_datum_t){.data = (unsigned char *)(uintptr_t)text,
                            .size = text != NULL ? (unsigned)strlen(text) : 0};
}

/* "2026-11-30" */
static void tls_day(time_t t, char out[16]) {
    struct tm parts;
    if (gmtime_r(&t, &parts) == NULL || strftime(out, 16, "%Y-%m-%d", &parts) == 0) {
        memcpy(out, "?", 2);
    }
}

static enum deft_status tls_check_times(const struct http_tls *tls, gnutls_x509_crt_t crt,
                                        int64_t *out_expires_s, struct deft_error *error) {
    char day[16];
    time_t now = time(NULL);
    time_t begin = gnutls_x509_crt_get_activation_time(crt);
    time_t end = gnutls_x509_crt_get_expiration_time(crt);
    if (end <= now) {
        tls_day(end, day);
        return deft_fail(error, DEFT_INVALID, 0, "a certificate in '%.200s' has expired on %s",
                         tls->cert_file, day);
    }
    if (begin > now) {
        tls_day(begin, day);
        return deft_fail(error, DEFT_INVALID, 0, "a certificate in '%.200s' is not valid before %s",
                         tls->cert_file, day);
    }
    if (*out_expires_s == 0 || end < *out_expires_s) {
        *out_expires_s = end;
    }
    return DEFT_OK;
}

static enum deft_status tls_load_chain(const struct http_tls *tls, const char *pem,
                                       struct http_tls_material *material,
                                       struct deft_error *error) {
    gnutls_x509_crt_t crts[TLS_MAX_CHAIN];
    gnutls_datum_t datum = tls_datum(pem);
    unsigned n = TLS_MAX_CHAIN;
    enum deft_status status = DEFT_OK;
    int code = gnutls_x509_crt_list_import(crts, &n, &datum, GNUTLS_X509_FMT_PEM,
                                           GNUTLS_X509_CRT_LIST_IMPORT_FAIL_IF_EXCEED |
                                               GNUTLS_X509_CRT_LIST_FAIL_IF_UNSORTED);
    if (code <= 0) {
        return deft_fail(error, DEFT_INVALID, code,
                         "'%.200s' is not a chain of 1 to %u certificates, the server's own first: "
                         "%s",
                         tls->cert_file, TLS_MAX_CHAIN,
                         code < 0 ? gnutls_strerror(code) : "it is empty");
    }
    for (unsigned i = 0; i < n; i++) {
        if (status == DEFT_OK) {
            status = tls_check_times(tls, crts[i], &material->expires_s, error);
        }
        if (status == DEFT_OK) {
            code = gnutls_pcert_import_x509(&material->chain[i], crts[i], 0);
            material->n_chain += code == 0;
            if (code != 0) {
                status = deft_fail(error, DEFT_NO_MEMORY, code, "no memory for a certificate");
            }
        }
        gnutls_x509_crt_deinit(crts[i]);
    }
    return status;
}

/* The key, and that it is the one of the first certificate. */
static enum deft_status tls_load_key(const struct http_tls *tls, const char *pem,
                                     struct http_tls_material *material, struct deft_error *error) {
    unsigned char ids[2][64];
    size_t n_ids[2] = {sizeof(ids[0]), sizeof(ids[1])};
    gnutls_datum_t datum = tls_datum(pem);
    gnutls_pubkey_t of_key = NULL;
    int code = gnutls_privkey_init(&material->key);
    if (code == 0) {
        code = gnutls_privkey_import_x509_raw(material->key, &datum, GNUTLS_X509_FMT_PEM, NULL, 0);
    }
    if (code != 0) {
        return deft_fail(error, DEFT_INVALID, code,
                         "'%.200s' is not an unencrypted private key: %s", tls->key_file,
                         gnutls_strerror(code));
    }
    code = gnutls_pubkey_init(&of_key);
    if (code == 0) {
        code = gnutls_pubkey_import_privkey(of_key, material->key, 0, 0);
    }
    if (code == 0) {
        code = gnutls_pubkey_get_key_id(of_key, GNUTLS_KEYID_USE_SHA256, ids[0], &n_ids[0]);
    }
    if (code == 0) {
        code = gnutls_pubkey_get_key_id(material->chain[0].pubkey, GNUTLS_KEYID_USE_SHA256, ids[1],
                                        &n_ids[1]);
    }
    if (of_key != NULL) {
        gnutls_pubkey_deinit(of_key);
    }
    if (code != 0) {
        return deft_fail(error, DEFT_INVALID, code, "the key '%.200s' cannot be used: %s",
                         tls->key_file, gnutls_strerror(code));
    }
    if (n_ids[0] != n_ids[1] || memcmp(ids[0], ids[1], n_ids[0]) != 0) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "the key '%.150s' does not belong to the certificate '%.150s'",
                         tls->key_file, tls->cert_file);
    }
    return DEFT_OK;
}

static enum deft_status tls_load_authorities(const struct http_tls *tls, char *pem,
                                             struct http_tls_material *material,
                                             struct deft_error *error) {
    gnutls_datum_t datum = tls_datum(pem);
    material->authorities_pem = pem;
    int code = gnutls_x509_trust_list_init(&material->authorities, 0);
    if (code == 0) {
        code = gnutls_x509_trust_list_add_trust_mem(material->authorities, &datum, NULL,
                                                    GNUTLS_X509_FMT_PEM, 0, 0);
    }
    if (code <= 0) {
        return deft_fail(error, DEFT_INVALID, code,
                         "'%.200s' holds no certificate of an "
                         "authority: %s",
                         tls->client_ca_file, code < 0 ? gnutls_strerror(code) : "it is empty");
    }
    return DEFT_OK;
}

static enum deft_status tls_load(const struct http_tls *tls, struct http_tls_material **out,
                                 struct deft_error *error) {
    char *cert = NULL;
    char *key = NULL;
    char *authorities = NULL;
    struct http_tls_material *material = calloc(1, sizeof(*material));
    if (material == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for certificates");
    }
    atomic_init(&material->references, 1);
    enum deft_status status = tls_read_file(tls->cert_file, "the certificate", 0, &cert, error);
    if (status == DEFT_OK) {
        status = tls_load_chain(tls, cert, material, error);
    }
    if (status == DEFT_OK) {
        status = tls_read_file(tls->key_file, "the key", 1, &key, error);
    }
    if (status == DEFT_OK) {
        status = tls_load_key(tls, key, material, error);
    }
    if (status == DEFT_OK && tls->client_ca_file != NULL) {
        status =
            tls_read_file(tls->client_ca_file, "the clients' authority", 0, &authorities, error);
    }
    if (status == DEFT_OK && authorities != NULL) {
        status = tls_load_authorities(tls, authorities, material, error);
    }
    free(cert);
    if (key != NULL) {
        gnutls_memset(key, 0, strlen(key));
        free(key);
    }
    if (status != DEFT_OK) {
        tls_material_free(material);
        return status;
    }
    *out = material;
    return DEFT_OK;
}

/* --- for the program -------------------------------------------------------------------------- */

enum deft_status http_tls_open(const struct http_tls_options *options, struct http_tls **out,
                               struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    struct http_tls *tls = calloc(1, sizeof(*tls));
    if (tls == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for certificates");
    }
    (void)pthread_mutex_init(&tls->lock, NULL);
    tls->cert_file = strdup(options->cert_file);
    tls->key_file = strdup(options->key_file);
    tls->client_ca_file = options->client_ca_file != NULL ? strdup(options->client_ca_file) : NULL;
    if (tls->cert_file == NULL || tls->key_file == NULL ||
        (options->client_ca_file != NULL && tls->client_ca_file == NULL)) {
        status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for certificates");
    } else {
        status = tls_load(tls, &tls->material, error);
    }
    if (status != DEFT_OK) {
        http_tls_close(tls);
        return status;
    }
    *out = tls;
    return DEFT_OK;
}

enum deft_status http_tls_reload(struct http_tls *tls, struct deft_error *error) {
    struct http_tls_material *fresh = NULL;
    enum deft_status status = tls_load(tls, &fresh, error);
    if (status != DEFT_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&tls->lock);
    struct http_tls_material *old = tls->material;
    tls->material = fresh;
    (void)pthread_mutex_unlock(&tls->lock);
    http_tls_give(old);
    return DEFT_OK;
}

int64_t http_tls_expires_s(struct http_tls *tls) {
    struct http_tls_material *material = http_tls_take(tls);
    int64_t expires_s = material->expires_s;
    http_tls_give(material);
    return expires_s;
}

void http_tls_close(struct http_tls *tls) {
    if (tls != NULL) {
        http_tls_give(tls->material);
        (void)pthread_mutex_destroy(&tls->lock);
        free(tls->cert_file);
        free(tls->key_file);
        free(tls->client_ca_file);
        free(tls);
    }
}

/* --- for connections -------------------------------------------------------------------------- */

void http_tls_chain(const struct http_tls_material *material, gnutls_pcert_st **out_chain,
                    unsigned *out_n, gnutls_privkey_t *out_key) {
    *out_chain = (gnutls_pcert_st *)(uintptr_t)material->chain; /* GnuTLS only reads it */
    *out_n = material->n_chain;
    *out_key = material->key;
}

const char *http_tls_client_ca(const struct http_tls_material *material) {
    return material->authorities_pem;
}

int http_tls_verify_client(const struct http_tls_material *material, gnutls_session_t session) {
    static const char for_clients[] = GNUTLS_KP_TLS_WWW_CLIENT;
    gnutls_typed_vdata_st data = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                  .data = (unsigned char *)(uintptr_t)for_clients};
    gnutls_x509_crt_t crts[TLS_MAX_CHAIN];
    unsigned n = 0;
    unsigned n_peer = 0;
    unsigned verdict = GNUTLS_CERT_INVALID;
    const gnutls_datum_t *peer = gnutls_certificate_get_peers(session, &n_peer);
    int code = 0;
    for (; peer != NULL && n < n_peer && n < TLS_MAX_CHAIN && code == 0; n++) {
        code = gnutls_x509_crt_init(&crts[n]);
        if (code != 0) {
            break;
        }
        code = gnutls_x509_crt_import(crts[n], &peer[n], GNUTLS_X509_FMT_DER);
    }
    if (n > 0 && code == 0 && n == n_peer) {
        code = gnutls_x509_trust_list_verify_crt2(material->authorities, crts, n, &data, 1, 0,
                                                  &verdict, NULL);
    }
    for (unsigned i = 0; i < n; i++) {
        gnutls_x509_crt_deinit(crts[i]);
    }
    return n > 0 && code == 0 && verdict == 0;
}
