/* Settings of the running controller: from where they come, what SIGHUP changes and what it leaves,
 * and that requests meanwhile see one state or the other. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "child.h"
#include "scripted_agent.h"
#include "talk.h"
#include "testing.h"

struct world {
    char dir[64];
    char file[96];
    char db[96];
    struct child child;
    uint16_t port;
};

static void write_file(const struct world *w, const char *text) {
    FILE *file = fopen(w->file, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void prepare(struct world *w, const char *text) {
    memset(w, 0, sizeof(*w));
    (void)snprintf(w->dir, sizeof(w->dir), "/tmp/deft-config-test-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    (void)snprintf(w->file, sizeof(w->file), "%s/c.conf", w->dir);
    (void)snprintf(w->db, sizeof(w->db), "%s/deft.db", w->dir);
    write_file(w, text);
}

static void launch(struct world *w, const char *const *environment) {
    const char *argv[] = {DEFT_CONTROLLER, "--config", w->file,       "--port", "0",
                          "--db",          w->db,      "--max-delay", "2",      NULL};
    child_start(&w->child, argv, environment, -1, 1);
    child_await_output(&w->child, ", database ");
    w->port = (uint16_t)strtoul(strstr(w->child.output, " port ") + 6, NULL, 10);
}

static void clean(struct world *w) {
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock"};
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        char path[128];
        (void)snprintf(path, sizeof(path), "%s%s", w->db, suffixes[i]);
        (void)unlink(path);
    }
    assert_int_equal(unlink(w->file), 0);
    assert_int_equal(rmdir(w->dir), 0);
}

static void stop(struct world *w) {
    assert_int_equal(kill(w->child.pid, SIGTERM), 0);
    int status = child_wait(&w->child);
    if (status != 0) {
        fail_msg("it ended with %d: %s", status, w->child.output);
    }
    child_free(&w->child);
    clean(w);
}

/* SIGHUP, and the line of the log that answers this one. */
static void reload(struct world *w, const char *text, const char *says) {
    write_file(w, text);
    w->child.n_output = 0; /* what was said before does not count */
    memset(w->child.output, 0, 1u << 16);
    assert_int_equal(kill(w->child.pid, SIGHUP), 0);
    child_await_output(&w->child, says);
    child_await_output(&w->child, "\n");
}

static void expect(const char *text, const char *part) {
    if (strstr(text, part) == NULL) {
        fail_msg("'%s' is not in %s", part, text);
    }
}

static void expect_config(const struct world *w, const char *part) {
    char *text = talk_expect(w->port, "GET", "/api/v1/config", NULL, 200);
    expect(text, part);
    free(text);
}

/* Registers a job without wishes and compares how it is described. */
static void expect_job(const struct world *w, const char *job, const char *part) {
    char path[128];
    char *registration = scripted_agent_registration();
    (void)snprintf(path, sizeof(path), "/api/v1/jobs/%s/incarnations", job);
    free(talk_expect(w->port, "POST", path, registration, 201));
    free(registration);
    (void)snprintf(path, sizeof(path), "/api/v1/jobs/%s", job);
    char *text = talk_expect(w->port, "GET", path, NULL, 200);
    expect(text, part);
    free(text);
}

/* --- without serving -------------------------------------------------------------------------- */

static char *run(const char *const *argv, const char *const *environment, int status) {
    struct child child;
    child_start(&child, argv, environment, -1, 1);
    int got = child_wait(&child);
    if (got != status) {
        fail_msg("it ended with %d: %s", got, child.output);
    }
    char *text = strdup(child.output);
    assert_non_null(text);
    child_free(&child);
    return text;
}

static void settings_are_checked_without_a_start(void **unused) {
    struct world w;
    (void)unused;
    prepare(&w, "mode = auto\nmax-merge = 65\n");
    const char *check[] = {
        DEFT_CONTROLLER, "--check-config", "--config", w.file, "--db", w.db, NULL};
    static const char *const stray[] = {"DEFT_CONTROLLER_XYZ=1", NULL};
    static const char *const url[] = {"DEFT_CONTROLLER=http://127.0.0.1:7600", NULL};
    char says[256];
    (void)snprintf(says, sizeof(says),
                   "deft-controller: %s:2: max-merge is '65', expected a whole number from 1 to ",
                   w.file);
    char *text = run(check, NULL, 2);
    expect(text, says);
    assert_string_equal(strchr(text, '\n'), "\n"); /* one line */
    free(text);
    write_file(&w, "mode = auto\n");
    text = run(check, stray, 2);
    expect(text, "DEFT_CONTROLLER_XYZ is in the environment, but is no setting of");
    free(text);
    text = run(check, url, 0);
    assert_string_equal(text, "");
    free(text);
    clean(&w); /* no database was made */
}

/* Lines that are no comments. */
static char *without_comments(const char *text) {
    char *out = calloc(1, strlen(text) + 1);
    size_t n = 0;
    assert_non_null(out);
    for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        size_t length = strcspn(line, "\n") + 1;
        if (*line != '#') {
            memcpy(out + n, line, length);
            n += length;
        }
    }
    return out;
}

static void what_is_printed_is_a_file_of_the_same(void **unused) {
    struct world w;
    (void)unused;
    prepare(&w, "mode = auto\nhost = a.example,b.example\n");
    static const char *const environment[] = {"DEFT_CONTROLLER_KEEP=raw=1d", NULL};
    const char *first[] = {
        DEFT_CONTROLLER, "--print-config", "--config", w.file, "--max-rate=7", "-v", NULL};
    const char *second[] = {DEFT_CONTROLLER, "--print-config", "--config", w.file, NULL};
    char *text = run(first, environment, 0);
    expect(text, "\nmode = auto\n");
    expect(text, "\nhost = a.example,b.example\n");
    expect(text, "\nkeep = raw=1d\n");
    expect(text, "\nmax-rate = 7\n");
    expect(text, "\nverbose = yes\n");
    expect(text, "; from DEFT_CONTROLLER_KEEP\n");
    write_file(&w, text);
    char *again = run(second, NULL, 0);
    char *before = without_comments(text);
    char *after = without_comments(again);
    assert_string_equal(before, after);
    free(before);
    free(after);
    free(again);
    free(text);
    clean(&w);
}

/* --- at work ---------------------------------------------------------------------------------- */

static void the_api_tells_where_values_come_from(void **unused) {
    struct world w;
    char where[256];
    static const char *const environment[] = {"DEFT_CONTROLLER_MAX_MERGE=5", NULL};
    (void)unused;
    prepare(&w, "\nmode = auto\nmax-merge = 4\n");
    launch(&w, environment);
    (void)snprintf(where, sizeof(where), "{\"file\":\"%s\",\"settings\":[{\"name\":\"listen\"",
                   w.file);
    expect_config(&w, where);
    (void)snprintf(where, sizeof(where),
                   "{\"name\":\"mode\",\"value\":\"auto\",\"source\":\"file\",\"where\":\"%s:2\","
                   "\"is_secret\":false,\"reloads\":true,\"needs_restart\":false}",
                   w.file);
    expect_config(&w, where);
    expect_config(&w, "{\"name\":\"max-merge\",\"value\":\"5\",\"source\":\"environment\","
                      "\"where\":\"DEFT_CONTROLLER_MAX_MERGE\"");
    expect_config(&w, "{\"name\":\"max-delay\",\"value\":\"2\",\"source\":\"flag\","
                      "\"where\":\"--max-delay\"");
    expect_config(&w, "{\"name\":\"tls-key\",\"value\":null,\"source\":\"default\",\"where\":null");
    stop(&w);
}

static void sighup_changes_new_jobs_and_names_what_waits(void **unused) {
    struct world w;
    (void)unused;
    prepare(&w, "mode = observe\n");
    launch(&w, NULL);
    expect_job(&w, "a", "\"mode\":\"observe\"");
    reload(&w, "mode = auto\nmax-merge = 5\nmetrics-jobs = 7\nwarmup = 3\nmax-delay = 4\n",
           "SIGHUP: needs a restart: metrics-jobs, warmup");
    expect(w.child.output, "changed: mode, max-merge\n");
    expect_job(&w, "b", "\"mode\":\"auto\"");
    expect_job(&w, "b", "\"max_merge\":5");
    expect_job(&w, "b", "\"max_delay\":2"); /* the command line wins, also now */
    expect_job(&w, "a", "\"mode\":\"observe\"");
    expect_config(&w, "{\"name\":\"mode\",\"value\":\"auto\",\"source\":\"file\"");
    expect_config(&w, "{\"name\":\"metrics-jobs\",\"value\":\"200\",\"source\":\"default\","
                      "\"where\":null,\"is_secret\":false,\"reloads\":false,"
                      "\"needs_restart\":true}");
    reload(&w, "mode = fast\n", "SIGHUP: the old settings stay in use: ");
    expect(w.child.output, ":1: mode is 'fast', expected off, observe or auto\n");
    expect_job(&w, "c", "\"mode\":\"auto\"");
    reload(&w, "", "changed: mode, max-merge\n");
    expect_job(&w, "d", "\"mode\":\"observe\"");
    expect_config(&w, "{\"name\":\"metrics-jobs\",\"value\":\"200\",\"source\":\"default\","
                      "\"where\":null,\"is_secret\":false,\"reloads\":false,"
                      "\"needs_restart\":false}");
    stop(&w);
}

static void sighup_changes_the_rate_and_the_log(void **unused) {
    struct world w;
    struct talk_reply reply = {0};
    (void)unused;
    prepare(&w, "");
    launch(&w, NULL);
    reload(&w, "max-rate = 1\nverbose = yes\nkeep = raw=2d\nmax-db-bytes = 0\n",
           "changed: max-rate, keep, max-db-bytes, verbose\n");
    int64_t n_asked = 0;
    while (reply.status != 429 && n_asked++ < 1000) {
        talk_reply_done(&reply);
        talk_request(w.port, "GET", "/healthz", NULL, &reply);
    }
    assert_int_equal(reply.status, 429);
    talk_reply_done(&reply);
    reload(&w, "max-rate = 0\n", "changed: max-rate, keep, max-db-bytes, verbose\n");
    for (int i = 0; i < 20; i++) {
        free(talk_expect(w.port, "GET", "/healthz", NULL, 200));
    }
    stop(&w);
}

/* --- at once ---------------------------------------------------------------------------------- */

struct asker {
    uint16_t port;
    atomic_int is_over;
    unsigned n_seen[2];
};

static void *ask_all_the_time(void *context) {
    struct asker *asker = context;
    while (!atomic_load(&asker->is_over)) {
        struct talk_reply reply;
        talk_request(asker->port, "GET", "/api/v1/config", NULL, &reply);
        int is_one = reply.body != NULL && strstr(reply.body, "\"epsilon\",\"value\":\"0.1\"") &&
                     strstr(reply.body, "\"min-progress\",\"value\":\"0.1\"");
        int is_two = reply.body != NULL && strstr(reply.body, "\"epsilon\",\"value\":\"0.2\"") &&
                     strstr(reply.body, "\"min-progress\",\"value\":\"0.2\"");
        asker->n_seen[0] += is_one != is_two; /* never something between */
        asker->n_seen[1] += is_one == is_two;
        talk_reply_done(&reply);
    }
    return NULL;
}

static void requests_see_one_state_or_the_other(void **unused) {
    static const char *const states[] = {"epsilon = 0.1\nmin-progress = 0.1\nverbose = yes\n",
                                         "epsilon = 0.2\nmin-progress = 0.2\n"};
    struct world w;
    pthread_t threads[3];
    struct asker askers[3] = {{0}};
    (void)unused;
    prepare(&w, states[0]);
    launch(&w, NULL);
    for (size_t i = 0; i < 3; i++) {
        askers[i].port = w.port;
        assert_int_equal(pthread_create(&threads[i], NULL, ask_all_the_time, &askers[i]), 0);
    }
    for (int i = 1; i <= 20; i++) {
        char job[16];
        (void)snprintf(job, sizeof(job), "j%d", i);
        reload(&w, states[i % 2], "changed: epsilon, min-progress, verbose\n");
        expect_job(&w, job, i % 2 ? "\"epsilon\":0.2" : "\"epsilon\":0.1");
    }
    for (size_t i = 0; i < 3; i++) {
        atomic_store(&askers[i].is_over, 1);
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(askers[i].n_seen[1], 0);
        assert_in_range(askers[i].n_seen[0], 1, 1u << 30);
    }
    stop(&w);
}

/* --- supervisor ------------------------------------------------------------------------------- */

static void expect_notice(int fd, const char *says) {
    char text[64] = "";
    ssize_t n = recv(fd, text, sizeof(text) - 1, 0);
    assert_int_equal(n, strlen(says));
    assert_string_equal(text, says);
}

static void its_supervisor_is_told(void **unused) {
    struct world w;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char variable[128];
    (void)unused;
    prepare(&w, "");
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", w.dir);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    struct timeval patience = {.tv_sec = testing_deadline_ns(20) / 1000000000};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    (void)snprintf(variable, sizeof(variable), "NOTIFY_SOCKET=%s", address.sun_path);
    const char *const environment[] = {variable, NULL};
    launch(&w, environment);
    expect_notice(fd, "READY=1");
    assert_int_equal(kill(w.child.pid, SIGTERM), 0);
    expect_notice(fd, "STOPPING=1");
    assert_int_equal(child_wait(&w.child), 0);
    child_free(&w.child);
    (void)close(fd);
    assert_int_equal(unlink(address.sun_path), 0);
    clean(&w);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(settings_are_checked_without_a_start),
    cmocka_unit_test(what_is_printed_is_a_file_of_the_same),
    cmocka_unit_test(the_api_tells_where_values_come_from),
    cmocka_unit_test(sighup_changes_new_jobs_and_names_what_waits),
    cmocka_unit_test(sighup_changes_the_rate_and_the_log),
    cmocka_unit_test(requests_see_one_state_or_the_other),
    cmocka_unit_test(its_supervisor_is_told),
};
TESTING_MAIN(cases)
