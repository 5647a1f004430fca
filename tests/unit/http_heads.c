/* Pieces of a request's head, rates, secrets and packing. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gzip/gzip.h"
#include "http/http_head.h"
#include "http/http_rate.h"
#include "http/http_secret.h"
#include "testing.h"

static void tokens_are_cut_out(void **unused) {
    static const struct {
        const char *value;
        const char *token; /* NULL: it is none */
    } cases_of[] = {{"Bearer abc", "abc"}, {"bearer   a.b-c_d~e+f/g==", "a.b-c_d~e+f/g=="},
                    {"BEARER x \t", "x"},  {"Bearer", NULL},
                    {"Bearer ", NULL},     {"Bearer =", NULL},
                    {"Bearer a b", NULL},  {"Bearer a,b", NULL},
                    {"Bearer\ta", NULL},   {"Bearera", NULL},
                    {"Basic abc", NULL},   {"", NULL}};
    (void)unused;
    for (size_t i = 0; i < sizeof(cases_of) / sizeof(cases_of[0]); i++) {
        const char *token = NULL;
        size_t n = 0;
        int found = http_head_bearer(cases_of[i].value, &token, &n);
        assert_int_equal(found, cases_of[i].token != NULL);
        if (token != NULL && cases_of[i].token != NULL) {
            assert_int_equal(n, strlen(cases_of[i].token));
            assert_memory_equal(token, cases_of[i].token, n);
        }
    }
}

static void lengths_are_numbers(void **unused) {
    static const char *const none[] = {"",    "-1",  "+1",  " 1", "1 ",
                                       "0x1", "1e3", "1,1", "१",  "9223372036854775808"};
    uint64_t n = 7;
    (void)unused;
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        assert_false(http_head_length(none[i], &n));
        assert_int_equal(n, 7);
    }
    assert_true(http_head_length("9223372036854775807", &n));
    assert_true(n == INT64_MAX);
    assert_true(http_head_length("000", &n));
    assert_true(n == 0);
}

static void targets_give_path_and_host(void **unused) {
    char host[16] = "untouched";
    const char *path = NULL;
    (void)unused;
    assert_true(http_head_target("/a?b", &path, host, sizeof(host)));
    assert_string_equal(path, "/a?b");
    assert_string_equal(host, "");
    assert_true(http_head_target("https://h:1/x/y", &path, host, sizeof(host)));
    assert_string_equal(path, "/x/y");
    assert_string_equal(host, "h:1");
    assert_true(http_head_target("HTTP://h", &path, host, sizeof(host)));
    assert_string_equal(path, "/");
    static const char *const none[] = {"",         "x",        "*",   "http://", "http:///x",
                                       "ftp://h/", "//h/x/a/", "h:1", "http:/h"};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        int is_path = none[i][0] == '/'; /* whatever it looks like, it is a path */
        assert_int_equal(http_head_target(none[i], &path, host, sizeof(host)), is_path);
    }
    assert_true(http_head_target("http://123456789012345/", &path, host, sizeof(host)));
    assert_false(http_head_target("http://1234567890123456/", &path, host, sizeof(host)));
}

/* --- rates ---------------------------------------------------------------------------------------
 */

static uint64_t client_of(const char *address) {
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, address, &v4.sin_addr) == 1) {
        return http_rate_client((const struct sockaddr *)&v4);
    }
    assert_int_equal(inet_pton(AF_INET6, address, &v6.sin6_addr), 1);
    return http_rate_client((const struct sockaddr *)&v6);
}

static void clients_are_hosts(void **unused) {
    (void)unused;
    assert_true(client_of("10.0.0.1") != client_of("10.0.0.2"));
    assert_true(client_of("2001:db8::1") == client_of("2001:db8::ffff:2"));
    assert_true(client_of("2001:db8::1") != client_of("2001:db8:0:1::1"));
    assert_true(client_of("::1") != client_of("0.0.0.1"));
    assert_true(client_of("::ffff:10.0.0.1") == client_of("10.0.0.1"));
    assert_true(client_of("::ffff:10.0.0.1") != client_of("::ffff:10.0.0.2"));
}

/* Over any time, what is let through is the burst and what was earned, and no less of it for a
 * client that asks as fast as it may. */
static void rates_hold_over_any_time(void **unused) {
    enum { PER_S = 50 };
    struct http_rate rate;
    uint64_t seed = testing_seed();
    int64_t now_ns = INT64_C(1000000000);
    int64_t begin_ns = now_ns;
    uint64_t n_served = 0;
    (void)unused;
    assert_true(http_rate_init(&rate, PER_S, 1));
    for (int i = 0; i < 20000; i++) {
        int64_t wait_ns = http_rate_take(&rate, 1, now_ns);
        n_served += wait_ns == 0;
        if (wait_ns > 0 && testing_random_below(&seed, 4) == 0) {
            assert_int_equal(http_rate_take(&rate, 1, now_ns + wait_ns - 1) > 0, 1);
            now_ns += wait_ns;
            assert_int_equal(http_rate_take(&rate, 1, now_ns), 0);
            n_served++;
        }
        now_ns += (int64_t)testing_random_below(&seed, 8000000);
        double earned = (double)(now_ns - begin_ns) / 1e9 * PER_S;
        assert_true((double)n_served <= PER_S + earned + 1);
    }
    assert_true((double)n_served >= (double)(now_ns - begin_ns) / 1e9 * PER_S - PER_S);
    http_rate_done(&rate);
}

/* Thousands of others at the same time change nothing for one that keeps asking, and an idle table
 * is no obstacle to anybody. */
static void clients_do_not_pay_for_each_other(void **unused) {
    struct http_rate rate;
    int64_t now_ns = INT64_C(5000000000);
    (void)unused;
    assert_true(http_rate_init(&rate, 10, 99));
    for (uint64_t client = 1; client <= 4096; client++) {
        assert_int_equal(http_rate_take(&rate, client, now_ns), 0);
    }
    for (int i = 1; i < 10; i++) {
        assert_int_equal(http_rate_take(&rate, 77, now_ns), 0);
    }
    assert_true(http_rate_take(&rate, 77, now_ns) > 0);
    assert_int_equal(http_rate_take(&rate, 78, now_ns), 0);
    for (uint64_t client = 10000; client < 40000; client++) { /* more than the table has */
        (void)http_rate_take(&rate, client, now_ns + INT64_C(3000000000));
    }
    http_rate_done(&rate);
    assert_true(http_rate_init(&rate, 0, 0));
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(http_rate_take(&rate, 1, now_ns), 0);
    }
    http_rate_done(&rate);
}

/* --- secrets and packing
 * -------------------------------------------------------------------------- */

static void secrets_are_made_once(void **unused) {
    enum { N = 200 };
    static char secrets[N][HTTP_SECRET_BYTES];
    uint8_t hashes[2][HTTP_SECRET_HASH];
    (void)unused;
    for (int i = 0; i < N; i++) {
        assert_int_equal(http_secret_make(secrets[i], NULL), DEFT_OK);
        assert_int_equal(strlen(secrets[i]), HTTP_SECRET_BYTES - 1);
        assert_memory_equal(secrets[i], "deft_", 5);
        for (const char *c = secrets[i] + 5; *c != '\0'; c++) {
            assert_non_null(strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                   "0123456789-_",
                                   *c));
        }
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(secrets[i], secrets[k]);
        }
    }
    /* FIPS 180-2, appendix B.1. */
    static const uint8_t of_abc[HTTP_SECRET_HASH] = {
        0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40,
        0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17,
        0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};
    assert_int_equal(http_secret_hash("abc", 3, hashes[0], NULL), DEFT_OK);
    assert_true(http_secret_equal(hashes[0], of_abc));
    for (size_t i = 0; i < (size_t)HTTP_SECRET_HASH * 8; i++) { /* any bit makes a difference */
        memcpy(hashes[1], of_abc, sizeof(of_abc));
        hashes[1][i / 8] ^= (uint8_t)(1u << i % 8);
        assert_false(http_secret_equal(hashes[1], of_abc));
    }
}

static void what_was_packed_comes_out(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int round = 0; round < 60; round++) {
        size_t n = testing_random_below(&seed, 60000) + 200;
        uint64_t letters = testing_random_below(&seed, 40) + 1;
        char *plain = malloc(n);
        char *packed = NULL;
        char *out = NULL;
        size_t n_packed = 0;
        size_t n_out = 0;
        assert_non_null(plain);
        for (size_t i = 0; i < n; i++) {
            plain[i] = (char)('0' + testing_random_below(&seed, letters));
        }
        assert_int_equal(gzip_pack(plain, n, &packed, &n_packed), DEFT_OK);
        assert_true(n_packed < n);
        assert_int_equal(gzip_unpack(packed, n_packed, n, &out, &n_out), DEFT_OK);
        assert_int_equal(n_out, n);
        assert_memory_equal(out, plain, n);
        assert_int_equal(out[n], '\0');
        free(out);
        out = NULL;
        assert_int_equal(gzip_unpack(packed, n_packed, n - 1, &out, &n_out), DEFT_LIMIT);
        packed[n_packed - 1 - testing_random_below(&seed, 8)] ^= 1; /* length and check sum */
        assert_int_equal(gzip_unpack(packed, n_packed, n, &out, &n_out), DEFT_INVALID);
        assert_null(out);
        free(packed);
        free(plain);
    }
    char random[300];
    char *packed = NULL;
    size_t n = 0;
    for (size_t i = 0; i < sizeof(random); i++) {
        random[i] = (char)testing_random_below(&seed, 256);
    }
    assert_int_equal(gzip_pack(random, sizeof(random), &packed, &n), DEFT_LIMIT);
    assert_null(packed);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(tokens_are_cut_out),
    cmocka_unit_test(lengths_are_numbers),
    cmocka_unit_test(targets_give_path_and_host),
    cmocka_unit_test(clients_are_hosts),
    cmocka_unit_test(rates_hold_over_any_time),
    cmocka_unit_test(clients_do_not_pay_for_each_other),
    cmocka_unit_test(secrets_are_made_once),
    cmocka_unit_test(what_was_packed_comes_out),
};
TESTING_MAIN(cases)
