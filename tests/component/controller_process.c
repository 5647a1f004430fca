/* The controller as users run it: a process of its own, a database in a folder of its own, agents
 * that speak HTTP, and a kill -9 now and then. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "controller_child.h"
#include "talk.h"
#include "testing.h"
#include "wire/wire.h"

#define N_RANKS   2u
#define N_TENSORS 8u

/* Without a warm-up, which has a case of its own elsewhere. */
static const char *const options[] = {"--warmup", "0", NULL};

static void start(struct controller *c) {
    controller_child_prepare(c, options);
    controller_child_launch(c);
}

/* --- the agent
 * ------------------------------------------------------------------------------------ */

static char *registration_text(const char *key, uint32_t n_ranks, uint64_t hash) {
    struct dsched_tensor tensors[N_TENSORS];
    struct dsched_sample probes[3] = {{4096, 200000}, {1u << 20, 9000000}, {1u << 25, 280000000}};
    struct wire_link link = {.name = "mem:a", .n_probes = 3, .probes = probes};
    uint32_t ranks[N_RANKS] = {0, 1};
    struct wire_registration registration = {.agent = "host-1",
                                             .n_ranks = n_ranks,
                                             .table_hash = hash,
                                             .capabilities = WIRE_CAN_PREVIEW | WIRE_CAN_AVERAGE,
                                             .momentum = NAN,
                                             .learning_rate = NAN,
                                             .n_local_ranks = n_ranks < N_RANKS ? n_ranks : N_RANKS,
                                             .local_ranks = ranks,
                                             .n_tensors = N_TENSORS,
                                             .tensors = tensors,
                                             .n_links = 1,
                                             .links = &link};
    char *text = NULL;
    memset(tensors, 0, sizeof(tensors));
    for (uint32_t i = 0; i < N_TENSORS; i++) {
        tensors[i].name[0] = (char)('a' + i);
        tensors[i].elements = 1u << 20;
    }
    (void)snprintf(registration.key, sizeof(registration.key), "%s", key);
    (void)snprintf(registration.user, sizeof(registration.user), "user-1");
    assert_int_equal(wire_registration_encode(&registration, &text, NULL), DEFT_OK);
    return text;
}

/* Registers and gives the incarnation's path; returns the committed sequence number. */
static uint64_t register_job(const struct controller *c, const char *job, const char *key,
                             char out_path[128]) {
    struct wire_registered registered;
    char path[256];
    char *text = registration_text(key, N_RANKS, 7);
    (void)snprintf(path, sizeof(path), "/api/v1/jobs/%s/incarnations", job);
    char *answer = talk_expect(c->port, "POST", path, text, 201);
    assert_int_equal(wire_registered_decode(answer, strlen(answer), &registered, NULL), DEFT_OK);
    assert_string_equal(registered.job, job);
    (void)snprintf(out_path, 128, "/api/v1/incarnations/%.64s", registered.incarnation);
    free(answer);
    free(text);
    return registered.committed_seq;
}

/* A computation of 200 ms and a link that needs 280 ms: exact exposes most of it, a plan hides it.
 */
static char *report_text(uint64_t seq, uint64_t first, uint32_t n, uint64_t plan_seq) {
    struct wire_iteration *rows = calloc((size_t)n * N_RANKS, sizeof(*rows));
    struct wire_report report = {
        .agent = "host-1", .seq = seq, .n_iterations = n * N_RANKS, .iterations = rows};
    char *text = NULL;
    assert_non_null(rows);
    for (uint32_t i = 0; i < n * N_RANKS; i++) {
        rows[i] = (struct wire_iteration){.rank = i % N_RANKS,
                                          .iteration = first + i / N_RANKS,
                                          .plan_seq = plan_seq,
                                          .forward_ns = 60000000,
                                          .backward_ns = 120000000,
                                          .exposed_ns = plan_seq == 0 ? 180000000 : 0,
                                          .optimizer_ns = 20000000,
                                          .updates = 1,
                                          .merge = 1,
                                          .loss = 1.5,
                                          .grad_sq_local = NAN,
                                          .grad_sq_mean = NAN};
        rows[i].step_ns = 200000000 + rows[i].exposed_ns + (int64_t)(i % 7) * 10000;
    }
    assert_int_equal(wire_report_encode(&report, &text, NULL), DEFT_OK);
    free(rows);
    return text;
}

static uint64_t send_report(const struct controller *c, const char *incarnation, uint64_t seq,
                            uint64_t first, uint32_t n, uint64_t plan_seq) {
    char path[160];
    uint64_t committed = 0;
    char *text = report_text(seq, first, n, plan_seq);
    (void)snprintf(path, sizeof(path), "%s/reports", incarnation);
    char *answer = talk_expect(c->port, "POST", path, text, 200);
    assert_int_equal(wire_committed_decode(answer, strlen(answer), &committed, NULL), DEFT_OK);
    free(answer);
    free(text);
    return committed;
}

static void read_job(const struct controller *c, const char *job, struct wire_job *out) {
    char path[160];
    (void)snprintf(path, sizeof(path), "/api/v1/jobs/%s", job);
    char *answer = talk_expect(c->port, "GET", path, NULL, 200);
    assert_int_equal(wire_job_decode(answer, strlen(answer), out, NULL), DEFT_OK);
    free(answer);
}

/* Iterations that are stored, and rows of updates behind them: each is 1 when nothing is double. */
static void read_iterations(const struct controller *c, const char *incarnation, double *out_n,
                            double *out_updates) {
    char path[160];
    (void)snprintf(path, sizeof(path), "%s/iterations?points=1", incarnation);
    char *answer = talk_expect(c->port, "GET", path, NULL, 200);
    *out_n = talk_number(answer, "n_iterations");
    *out_updates = talk_number(answer, "updates");
    free(answer);
}

/* --- cases
 * ----------------------------------------------------------------------------------------- */

/* The loop of the product: observe, push, switch, commit. Returns the next sequence number. */
static uint64_t tune(const struct controller *c, const char *incarnation) {
    char path[160];
    (void)snprintf(path, sizeof(path), "%s/events", incarnation);
    int fd = talk_stream(c->port, path, NULL);
    free(talk_read_until(fd, "event: mode"));
    assert_int_equal(send_report(c, incarnation, 1, 0, 40, 0), 1);
    char *event = talk_read_until(fd, "\n\n\r\n");
    while (strstr(event, "event: plan") == NULL) { /* a heartbeat came first */
        free(event);
        event = talk_read_until(fd, "\n\n\r\n");
    }
    assert_non_null(strstr(event, "id: 1\n"));
    assert_non_null(strstr(event, "\"schema\":\"deft.plan/1\""));
    free(event);
    assert_int_equal(send_report(c, incarnation, 2, 40, 5, 0), 2);
    assert_int_equal(send_report(c, incarnation, 3, 45, 200, 1), 3);
    free(controller_child_await_log(c, "commit at iteration"));
    (void)close(fd);
    return 4;
}

static void plans_are_pushed_and_committed(void **unused) {
    struct controller c;
    struct wire_job job;
    char incarnation[128];
    char path[160];
    (void)unused;
    start(&c);
    assert_int_equal(register_job(&c, "36199_0", "start-1", incarnation), 0);
    (void)tune(&c, incarnation);
    read_job(&c, "36199_0", &job);
    assert_string_equal(job.state, "running");
    assert_string_equal(job.phase, "committed");
    assert_string_equal(job.user, "user-1");
    assert_int_equal(job.plan_seq, 1);
    assert_int_equal(job.n_switches, 1);
    assert_true(job.gain > 1.85 && job.gain < 1.95);
    assert_int_equal(job.iterations, 245);
    (void)snprintf(path, sizeof(path), "/api/v1/plans/%.64s/explain", job.plan);
    char *text = talk_expect(c.port, "GET", path, NULL, 200);
    assert_non_null(strstr(text, "\"schema\":\"deft.solution/1\""));
    assert_true(talk_number(strstr(text, "\"measured\""), "n_iterations") == 200);
    free(text);
    (void)snprintf(path, sizeof(path), "%s/decisions", incarnation);
    struct wire_decisions decisions = {0};
    text = talk_expect(c.port, "GET", path, NULL, 200);
    assert_int_equal(wire_decisions_decode(text, strlen(text), &decisions, NULL), DEFT_OK);
    assert_int_equal(decisions.n_decisions, 2);
    assert_string_equal(decisions.decisions[0].kind, "push");
    assert_string_equal(decisions.decisions[1].kind, "commit");
    wire_decisions_done(&decisions);
    free(text);
    (void)snprintf(path, sizeof(path), "%s/profile", incarnation);
    struct dsched_profile profile = {0};
    text = talk_expect(c.port, "GET", path, NULL, 200);
    assert_int_equal(wire_profile_decode(text, strlen(text), &profile, NULL), DEFT_OK);
    assert_int_equal(profile.forward_ns, 60000000);
    dsched_profile_done(&profile);
    free(text);
    controller_child_stop(&c);
}

static void restarts_keep_plan_and_number(void **unused) {
    struct controller c;
    struct wire_job job;
    char incarnation[128];
    char path[160];
    (void)unused;
    start(&c);
    (void)register_job(&c, "j", "start-1", incarnation);
    (void)tune(&c, incarnation);
    (void)controller_child_halt(&c, SIGKILL);
    controller_child_launch(&c);
    assert_int_equal(register_job(&c, "j", "start-1", path), 3);
    assert_string_equal(path, incarnation);
    (void)snprintf(path, sizeof(path), "%s/events", incarnation);
    int fd = talk_stream(c.port, path, NULL);
    char *event = talk_read_until(fd, "event: mode");
    assert_non_null(strstr(event, "event: plan\nid: 1\n"));
    free(event);
    (void)close(fd);
    fd = talk_stream(c.port, path, "1"); /* has it already */
    event = talk_read_until(fd, "event: mode");
    assert_null(strstr(event, "event: plan"));
    free(event);
    (void)close(fd);
    assert_int_equal(send_report(&c, incarnation, 4, 245, 200, 1), 4);
    read_job(&c, "j", &job);
    assert_string_equal(job.phase, "committed");
    assert_int_equal(job.plan_seq, 1);
    assert_int_equal(job.n_rollbacks, 0);
    assert_true(job.gain > 1.85 && job.gain < 1.95);
    assert_int_equal(job.iterations, 445);
    controller_child_stop(&c);
}

static void reports_count_once(void **unused) {
    struct controller c;
    char incarnation[128];
    double n = 0;
    double updates = 0;
    (void)unused;
    start(&c);
    (void)register_job(&c, "j", "start-1", incarnation);
    assert_int_equal(send_report(&c, incarnation, 1, 0, 10, 0), 1);
    assert_int_equal(send_report(&c, incarnation, 2, 10, 10, 0), 2);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(send_report(&c, incarnation, 1, 0, 10, 0), 2);
        assert_int_equal(send_report(&c, incarnation, 2, 10, 10, 0), 2);
    }
    /* A new agent's numbers begin anew, and what it repeats is ignored by key. */
    assert_int_equal(send_report(&c, incarnation, 3, 5, 20, 0), 3);
    read_iterations(&c, incarnation, &n, &updates);
    assert_true(n == 25 && updates == 25);
    controller_child_stop(&c);
}

/* Reports go on while the controller is killed, again and again, with an answer outstanding: what
 * was acknowledged is there, and nothing is there twice. */
static void kills_lose_nothing_acknowledged(void **unused) {
    struct controller c;
    char incarnation[128];
    char path[160];
    uint64_t state = testing_seed();
    uint64_t acknowledged = 0;
    double n = 0;
    double updates = 0;
    (void)unused;
    start(&c);
    (void)register_job(&c, "j", "start-1", incarnation);
    (void)snprintf(path, sizeof(path), "%s/reports", incarnation);
    for (int round = 0; round < 12; round++) {
        uint64_t n_reports = testing_random_below(&state, 6);
        for (uint64_t i = 0; i < n_reports; i++) {
            acknowledged++;
            assert_int_equal(
                send_report(&c, incarnation, acknowledged, (acknowledged - 1) * 20, 20, 0),
                acknowledged);
        }
        /* One more is sent, and nobody waits for the answer. */
        char head[512];
        char *text = report_text(acknowledged + 1, acknowledged * 20, 20, 0);
        int fd = talk_connect(c.port);
        int length = snprintf(head, sizeof(head),
                              "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                              "application/json\r\nContent-Length: %zu\r\n\r\n",
                              path, strlen(text));
        talk_send(fd, head, (size_t)length);
        talk_send(fd, text, strlen(text));
        (void)controller_child_halt(&c, SIGKILL);
        (void)close(fd);
        free(text);
        controller_child_launch(&c);
        char again[128];
        uint64_t committed = register_job(&c, "j", "start-1", again);
        assert_true(committed == acknowledged || committed == acknowledged + 1);
        acknowledged = committed;
        if (acknowledged > 0) {
            read_iterations(&c, incarnation, &n, &updates);
            assert_true(n == (double)acknowledged * 20 && updates == n);
        }
    }
    assert_true(acknowledged > 10);
    controller_child_stop(&c);
}

static void a_second_controller_is_refused(void **unused) {
    struct controller c;
    int status = 0;
    (void)unused;
    start(&c);
    struct controller second = c;
    controller_child_spawn(&second);
    char *text = controller_child_await_log(&second, "another controller has the database");
    assert_int_equal(waitpid(second.pid, &status, 0), second.pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    (void)close(second.log_fd);
    free(text);
    free(talk_expect(c.port, "GET", "/readyz", NULL, 200));
    controller_child_stop(&c);
}

static void registrations_must_agree(void **unused) {
    struct controller c;
    char incarnation[128];
    (void)unused;
    start(&c);
    (void)register_job(&c, "j", "start-1", incarnation);
    char *text = registration_text("start-1", 1, 7);
    char *answer = talk_expect(c.port, "POST", "/api/v1/jobs/j/incarnations", text, 409);
    assert_non_null(strstr(answer, "\"field\":\"n_ranks\""));
    free(answer);
    free(text);
    text = registration_text("start-1", N_RANKS, 8);
    answer = talk_expect(c.port, "POST", "/api/v1/jobs/j/incarnations", text, 409);
    assert_non_null(strstr(answer, "\"field\":\"table_hash\""));
    free(answer);
    free(text);
    controller_child_stop(&c);
}

static void operators_steer(void **unused) {
    struct controller c;
    struct wire_job job;
    char incarnation[128];
    char path[160];
    (void)unused;
    start(&c);
    (void)register_job(&c, "j", "start-1", incarnation);
    uint64_t seq = tune(&c, incarnation);
    (void)snprintf(path, sizeof(path), "%s/events", incarnation);
    int fd = talk_stream(c.port, path, "1");
    free(talk_read_until(fd, "\"auto\"}\n"));
    free(talk_expect(c.port, "PUT", "/api/v1/jobs/j/mode", "{\"mode\":\"observe\"}", 200));
    /* Back to exact, under a new number. */
    char *event = talk_read_until(fd, "\"rule\":\"exact\"");
    assert_non_null(strstr(event, "{\"mode\":\"observe\"}"));
    assert_non_null(strstr(event, "id: 2\n"));
    free(event);
    (void)close(fd);
    free(talk_expect(c.port, "PUT", "/api/v1/jobs/j/limits", "{\"max_merge\":2,\"max_delay\":0}",
                     200));
    free(talk_expect(c.port, "PUT", "/api/v1/jobs/j/limits", "{\"max_merge\":0,\"max_delay\":0}",
                     400));
    free(talk_expect(c.port, "PUT", "/api/v1/jobs/j/mode", "{\"mode\":\"fast\"}", 400));
    free(talk_expect(c.port, "PUT", "/api/v1/jobs/nobody/mode", "{\"mode\":\"off\"}", 404));
    read_job(&c, "j", &job);
    assert_string_equal(job.mode, "observe");
    assert_int_equal(job.max_merge, 2);
    assert_int_equal(job.max_delay, 0);
    /* Both ranks end: the job is closed, and its story stays. */
    (void)snprintf(path, sizeof(path), "%s/reports", incarnation);
    char body[256];
    (void)snprintf(body, sizeof(body),
                   "{\"agent\":\"host-1\",\"seq\":%llu,\"events\":[{\"rank\":0,\"kind\":"
                   "\"finished\"},{\"rank\":1,\"kind\":\"finished\"}]}",
                   (unsigned long long)seq);
    free(talk_expect(c.port, "POST", path, body, 200));
    free(controller_child_await_log(&c, "is finished"));
    read_job(&c, "j", &job);
    assert_string_equal(job.state, "finished");
    char *list = talk_expect(c.port, "GET", "/api/v1/jobs?state=finished&user=user-1", NULL, 200);
    assert_true(talk_number(list, "total") == 1);
    free(list);
    list = talk_expect(c.port, "GET", "/api/v1/jobs?state=running", NULL, 200);
    assert_true(talk_number(list, "total") == 0);
    free(list);
    controller_child_stop(&c);
}

static void limits_are_checked_and_kept(void **unused) {
    static const struct {
        const char *body;
        const char *says; /* NULL: it is taken */
    } puts[] = {
        {"{\"max_merge\":0,\"max_delay\":0}", "max_merge: 0 is outside 1..64"},
        {"{\"max_merge\":1}", "max_delay: the field is missing"},
        {"{\"max_merge\":1,\"max_delay\":0,\"epsilon\":1.01}", "epsilon: 0..1 was expected"},
        {"{\"max_merge\":1,\"max_delay\":0,\"epsilon\":-1}", "epsilon: 0..1 was expected"},
        {"{\"max_merge\":1,\"max_delay\":0,\"min_progress\":2}", "min_progress: 0..1 was"},
        {"{\"max_merge\":1,\"max_delay\":0,\"loss_floor\":\"0\"}", "loss_floor: a finite number"},
        {"{\"max_merge\":1,\"max_delay\":0,\"loss_floor\":1e999}", "loss_floor: a finite number"},
        {"{\"max_merge\":2,\"max_delay\":1,\"epsilon\":0.03,\"min_progress\":0.75,"
         "\"loss_floor\":-2.5}",
         NULL},
    };
    struct controller c;
    struct wire_job job;
    char incarnation[128];
    (void)unused;
    start(&c);
    (void)register_job(&c, "j", "start-1", incarnation);
    for (size_t i = 0; i < sizeof(puts) / sizeof(puts[0]); i++) {
        char *answer = talk_expect(c.port, "PUT", "/api/v1/jobs/j/limits", puts[i].body,
                                   puts[i].says == NULL ? 200 : 400);
        assert_true(puts[i].says == NULL || strstr(answer, puts[i].says) != NULL);
        read_job(&c, "j", &job);
        assert_int_equal(job.max_merge, puts[i].says == NULL ? 2 : 3);
        assert_true(puts[i].says == NULL || (job.epsilon == 0.01 && isnan(job.loss_floor)));
        free(answer);
    }
    (void)controller_child_halt(&c, SIGKILL);
    controller_child_launch(&c);
    read_job(&c, "j", &job);
    assert_int_equal(job.max_merge, 2);
    assert_int_equal(job.max_delay, 1);
    assert_true(job.epsilon == 0.03 && job.min_progress == 0.75 && job.loss_floor == -2.5);
    /* What is absent becomes the default, a floor none. */
    free(talk_expect(c.port, "PUT", "/api/v1/jobs/j/limits", "{\"max_merge\":2,\"max_delay\":1}",
                     200));
    read_job(&c, "j", &job);
    assert_true(job.epsilon == 0.01 && job.min_progress == 0.5 && isnan(job.loss_floor));
    controller_child_stop(&c);
}

static void hostile_requests_are_survived(void **unused) {
    static const struct {
        const char *method;
        const char *path;
        const char *body;
        int status;
    } hostile[] = {
        {"POST", "/api/v1/jobs/j/incarnations", "{\"key\":", 400},
        {"POST", "/api/v1/jobs/j/incarnations", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 400},
        {"POST", "/api/v1/jobs/%zz/incarnations", "{}", 400},
        {"POST", "/api/v1/incarnations/i999/reports", "{\"agent\":\"a\",\"seq\":1}", 404},
        {"POST", "/api/v1/incarnations/x/reports", "{}", 404},
        {"POST", "/api/v1/incarnations/i1/reports", "{\"agent\":\"a\",\"seq\":1,\"seq\":2}", 400},
        {"POST", "/api/v1/incarnations/i1/reports",
         "{\"agent\":\"a\",\"seq\":1,\"iterations\":[[7,0,0,1,1,1,1,1,1]]}", 400},
        {"POST", "/api/v1/incarnations/i1/reports",
         "{\"agent\":\"a\",\"seq\":1,\"ops\":[[0,5,1,1,1,1,1]]}", 400},
        {"POST", "/api/v1/incarnations/i1/reports",
         "{\"agent\":\"a\",\"seq\":1,\"readiness\":[{\"rank\":0,\"iteration\":0,"
         "\"offsets_ns\":[1]}]}",
         400},
        {"GET", "/api/v1/incarnations/i99999999999999999999999/plans", NULL, 404},
        {"GET", "/api/v1/incarnations/i1/iterations?points=0", NULL, 400},
        {"GET", "/api/v1/incarnations/i1/iterations?from=-1", NULL, 400},
        {"GET", "/api/v1/incarnations/i1/iterations?from=9&to=3", NULL, 200},
        {"GET", "/api/v1/jobs?limit=1001", NULL, 400},
        {"GET", "/api/v1/jobs?state=';DROP%20TABLE%20jobs", NULL, 400},
        {"GET", "/api/v1/plans/i1.1", NULL, 404},
        {"GET", "/api/v1/plans/..", NULL, 404},
        {"DELETE", "/api/v1/jobs/j", NULL, 409},
        {"DELETE", "/api/v1/jobs/nobody", NULL, 404},
        {"DELETE", "/api/v1/jobs", NULL, 405},
        {"GET", "/nothing", NULL, 404},
    };
    struct controller c;
    char incarnation[128];
    struct talk_reply reply;
    (void)unused;
    start(&c);
    (void)register_job(&c, "j", "start-1", incarnation);
    for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
        talk_request(c.port, hostile[i].method, hostile[i].path, hostile[i].body, &reply);
        if (reply.status != hostile[i].status) {
            fail_msg("%s %s gave %d: %s", hostile[i].method, hostile[i].path, reply.status,
                     reply.body);
        }
        if (reply.status >= 400) {
            assert_non_null(strstr(reply.head, "application/problem+json"));
            assert_true(talk_number(reply.body, "status") == hostile[i].status);
        }
        talk_reply_done(&reply);
    }
    static const char no_type[] = "POST /api/v1/jobs/j/incarnations HTTP/1.1\r\nHost: localhost\r\n"
                                  "Content-Length: 2\r\n\r\n{}";
    talk_raw(c.port, no_type, sizeof(no_type) - 1, &reply);
    assert_int_equal(reply.status, 415);
    talk_reply_done(&reply);
    char *spec = talk_expect(c.port, "GET", "/openapi.yaml", NULL, 200);
    assert_int_equal(strncmp(spec, "openapi: 3.1", 12), 0);
    free(spec);
    free(talk_expect(c.port, "GET", "/healthz", NULL, 200));
    controller_child_stop(&c);
}

/* The disk fills up: reports are refused with a reason, what is known is still served. */
static void a_full_disk_is_told(void **unused) {
    struct controller c;
    struct talk_reply reply;
    char incarnation[128];
    char path[160];
    uint64_t seq = 0;
    int status = 200;
    (void)unused;
    start(&c);
    (void)controller_child_halt(&c, SIGTERM);
    c.file_bytes = 1u << 20;
    controller_child_launch(&c);
    (void)register_job(&c, "j", "start-1", incarnation);
    (void)snprintf(path, sizeof(path), "%s/reports", incarnation);
    while (status == 200 && seq < 200) {
        char *text = report_text(seq + 1, seq * 200, 200, 0);
        talk_request(c.port, "POST", path, text, &reply);
        status = reply.status;
        seq++;
        if (status == 503) {
            assert_non_null(strstr(reply.body, "\"code\":\"store_failed\""));
            assert_non_null(strstr(reply.head, "Retry-After: "));
        }
        talk_reply_done(&reply);
        free(text);
    }
    assert_int_equal(status, 503);
    char *health = talk_expect(c.port, "GET", "/healthz", NULL, 200);
    assert_non_null(strstr(health, "\"status\":\"degraded\""));
    assert_true(talk_number(health, "refused_writes") >= 1);
    free(health);
    free(talk_expect(c.port, "GET", "/readyz", NULL, 503));
    free(talk_expect(c.port, "GET", "/api/v1/jobs/j", NULL, 200));
    (void)snprintf(path, sizeof(path), "%s/events", incarnation);
    int fd = talk_stream(c.port, path, NULL);
    free(talk_read_until(fd, "event: mode"));
    (void)close(fd);
    /* Room again: what was refused is taken now, once. */
    (void)controller_child_halt(&c, SIGTERM);
    c.file_bytes = 0;
    controller_child_launch(&c);
    assert_int_equal(send_report(&c, incarnation, seq, (seq - 1) * 200, 200, 0), seq);
    double n = 0;
    double updates = 0;
    read_iterations(&c, incarnation, &n, &updates);
    assert_true(n == (double)seq * 200 && updates == n);
    controller_child_stop(&c);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(plans_are_pushed_and_committed),
    cmocka_unit_test(restarts_keep_plan_and_number),
    cmocka_unit_test(reports_count_once),
    cmocka_unit_test(kills_lose_nothing_acknowledged),
    cmocka_unit_test(a_second_controller_is_refused),
    cmocka_unit_test(registrations_must_agree),
    cmocka_unit_test(operators_steer),
    cmocka_unit_test(limits_are_checked_and_kept),
    cmocka_unit_test(hostile_requests_are_survived),
    cmocka_unit_test(a_full_disk_is_told),
};
TESTING_MAIN(cases)
