#include "certificates.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <gnutls/abstract.h>
#include <gnutls/crypto.h>

#include "testing.h"

static void certificate_must(int code, const char *what) {
    if (code < 0) {
        fail_msg("%s: %s", what, gnutls_strerror(code));
    }
}

static void certificate_name_host(gnutls_x509_crt_t crt, const char *address) {
    struct in_addr v4;
    if (inet_pton(AF_INET, address, &v4) == 1) {
        certificate_must(gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_IPADDRESS, &v4,
                                                              sizeof(v4), GNUTLS_FSAN_SET),
                         "an address");
    } else {
        certificate_must(gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_DNSNAME, address,
                                                              (unsigned)strlen(address),
                                                              GNUTLS_FSAN_SET),
                         "a name");
    }
}

void certificate_make(const struct certificate_wish *wish, struct certificate *out) {
    unsigned char serial[12];
    time_t now = time(NULL);
    int is_authority = wish->issuer == NULL;
    certificate_must(gnutls_x509_privkey_init(&out->key), "a key");
    certificate_must(gnutls_x509_privkey_generate(out->key, GNUTLS_PK_ECDSA,
                                                  GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1),
                                                  0),
                     "a key");
    certificate_must(gnutls_x509_crt_init(&out->crt), "a certificate");
    certificate_must(gnutls_rnd(GNUTLS_RND_NONCE, serial, sizeof(serial)), "a number");
    serial[0] &= 0x7f;
    certificate_must(gnutls_x509_crt_set_version(out->crt, 3), "a version");
    certificate_must(gnutls_x509_crt_set_serial(out->crt, serial, sizeof(serial)), "a number");
    certificate_must(gnutls_x509_crt_set_activation_time(out->crt, now + wish->begin_s), "a time");
    certificate_must(gnutls_x509_crt_set_expiration_time(out->crt, now + wish->end_s), "a time");
    certificate_must(gnutls_x509_crt_set_dn_by_oid(out->crt, GNUTLS_OID_X520_COMMON_NAME, 0,
                                                   wish->name, (unsigned)strlen(wish->name)),
                     "a name");
    certificate_must(gnutls_x509_crt_set_key(out->crt, out->key), "a key");
    certificate_must(gnutls_x509_crt_set_basic_constraints(out->crt, (unsigned)is_authority, -1),
                     "constraints");
    certificate_must(gnutls_x509_crt_set_key_usage(out->crt, is_authority
                                                                 ? GNUTLS_KEY_KEY_CERT_SIGN
                                                                 : GNUTLS_KEY_DIGITAL_SIGNATURE),
                     "a usage");
    if (!is_authority) {
        certificate_must(
            gnutls_x509_crt_set_key_purpose_oid(
                out->crt,
                wish->address != NULL ? GNUTLS_KP_TLS_WWW_SERVER : GNUTLS_KP_TLS_WWW_CLIENT, 0),
            "a purpose");
    }
    if (wish->address != NULL) {
        certificate_name_host(out->crt, wish->address);
    }
    const struct certificate *issuer = is_authority ? out : wish->issuer;
    certificate_must(
        gnutls_x509_crt_sign2(out->crt, issuer->crt, issuer->key, GNUTLS_DIG_SHA256, 0),
        "a signature");
}

void certificate_done(struct certificate *certificate) {
    gnutls_x509_crt_deinit(certificate->crt);
    gnutls_x509_privkey_deinit(certificate->key);
}

static void certificate_replace(const char *path, const gnutls_datum_t *pem, unsigned mode) {
    char fresh[256];
    (void)snprintf(fresh, sizeof(fresh), "%s.new", path);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, pem->data, pem->size), pem->size);
    assert_int_equal(close(fd), 0);
    assert_int_equal(rename(fresh, path), 0);
}

void certificate_write(const struct certificate *certificate, const char *crt_path,
                       const char *key_path) {
    gnutls_datum_t pem;
    if (crt_path != NULL) {
        certificate_must(gnutls_x509_crt_export2(certificate->crt, GNUTLS_X509_FMT_PEM, &pem),
                         "PEM");
        certificate_replace(crt_path, &pem, 0644);
        gnutls_free(pem.data);
    }
    if (key_path != NULL) {
        certificate_must(gnutls_x509_privkey_export2(certificate->key, GNUTLS_X509_FMT_PEM, &pem),
                         "PEM");
        certificate_replace(key_path, &pem, 0600);
        gnutls_free(pem.data);
    }
}
