/* A job is removed over REST: while it runs it is not, then all of it is, and its name is free. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller_child.h"
#include "store_world.h"
#include "talk.h"
#include "testing.h"

/* The number of the start. */
static unsigned register_job(const struct controller *c, const char *job, const char *key) {
    char path[128];
    char body[512];
    (void)snprintf(path, sizeof(path), "/api/v1/jobs/%s/incarnations", job);
    (void)snprintf(body, sizeof(body),
                   "{\"key\":\"%s\",\"agent\":\"a\",\"n_ranks\":1,\"table_hash\":"
                   "\"0000000000000007\",\"local_ranks\":[0],\"tensors\":[{\"name\":\"w\","
                   "\"elements\":1000,\"dtype\":\"f32\"}],\"links\":[{\"name\":\"mem:a\","
                   "\"probes\":[[4096,20000],[1048576,900000]]}]}",
                   key);
    char *answer = talk_expect(c->port, "POST", path, body, 201);
    const char *id = strstr(answer, "\"incarnation\":\"i");
    assert_non_null(id);
    unsigned number = (unsigned)strtoul(id + strlen("\"incarnation\":\"i"), NULL, 10);
    free(answer);
    return number;
}

static void report(const struct controller *c, unsigned start, unsigned seq, const char *rest,
                   int status) {
    char path[128];
    char body[512];
    (void)snprintf(path, sizeof(path), "/api/v1/incarnations/i%u/reports", start);
    (void)snprintf(body, sizeof(body), "{\"agent\":\"a\",\"seq\":%u%s}", seq, rest);
    free(talk_expect(c->port, "POST", path, body, status));
}

#define ITERATIONS ",\"iterations\":[[0,0,0,1,1,1,1,1,9],[0,1,0,1,1,1,1,1,9]]"
#define END        ",\"events\":[{\"rank\":0,\"kind\":\"finished\"}]"

static void expect_gone(const struct controller *c, const char *job, unsigned start) {
    char path[128];
    static const char *const views[] = {"",       "/iterations", "/losses",
                                        "/links", "/plans",      "/decisions"};
    (void)snprintf(path, sizeof(path), "/api/v1/jobs/%s", job);
    free(talk_expect(c->port, "GET", path, NULL, 404));
    free(talk_expect(c->port, "DELETE", path, NULL, 404));
    for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++) {
        (void)snprintf(path, sizeof(path), "/api/v1/incarnations/i%u%s", start, views[i]);
        free(talk_expect(c->port, "GET", path, NULL, 404));
    }
    report(c, start, 90, ITERATIONS, 404);
    char *list = talk_expect(c->port, "GET", "/api/v1/jobs", NULL, 200);
    assert_true(talk_number(list, "total") == 1);
    free(list);
}

static void a_job_is_removed_with_all_that_is_known_of_it(void **unused) {
    struct controller c = {0};
    struct store_world look = {0};
    (void)unused;
    controller_child_prepare(&c, NULL);
    controller_child_launch(&c);
    unsigned stays = register_job(&c, "stays", "k");
    unsigned gone = register_job(&c, "gone", "k");
    report(&c, stays, 1, ITERATIONS, 200);
    report(&c, gone, 1, ITERATIONS, 200);
    char *text = talk_expect(c.port, "DELETE", "/api/v1/jobs/gone", NULL, 409);
    assert_non_null(strstr(text, "the job is running"));
    free(text);
    report(&c, gone, 2, END, 200);
    free(controller_child_await_log(&c, "is finished"));
    text = talk_expect(c.port, "DELETE", "/api/v1/jobs/gone", "{\"reason\":\"a mistake\"}", 200);
    assert_non_null(strstr(text, "\"id\":\"gone\""));
    free(text);
    expect_gone(&c, "gone", gone);
    text = talk_expect(c.port, "GET", "/api/v1/audit?subject=gone", NULL, 200);
    assert_non_null(strstr(text, "\"action\":\"job.remove\""));
    assert_non_null(strstr(text, "a mistake"));
    free(text);
    text = talk_expect(c.port, "GET", "/healthz", NULL, 200);
    assert_non_null(strstr(text, "\"status\":\"ok\""));
    assert_non_null(strstr(text, "\"upkeep\":\"ok\""));
    free(text);
    /* Also after a kill, and the next of that name is another one. */
    (void)controller_child_halt(&c, SIGKILL);
    controller_child_launch(&c);
    expect_gone(&c, "gone", gone);
    unsigned again = register_job(&c, "gone", "k");
    assert_true(again > gone);
    report(&c, again, 1, ITERATIONS, 200);
    text = talk_expect(c.port, "GET", "/api/v1/jobs/gone", NULL, 200);
    assert_true(talk_number(text, "iterations") == 2);
    free(text);
    (void)controller_child_halt(&c, SIGTERM);
    (void)snprintf(look.path, sizeof(look.path), "%.90s", c.db);
    store_defaults(&look.options);
    look.options.pause_ns = 0;
    assert_int_equal(store_open_with(look.path, &look.options, &look.store, NULL), DEFT_OK);
    store_world_tidy(&look, STORE_WORLD_BEGIN_NS);
    store_close(look.store);
    assert_int_equal(store_world_int(&look, "SELECT count(*) FROM jobs"), 2);
    assert_int_equal(store_world_int(&look, "SELECT count(*) FROM iterations"), 4);
    controller_child_clean(&c);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_job_is_removed_with_all_that_is_known_of_it),
};
TESTING_MAIN(cases)
