/* The programs as operators run them on a network: controller, agent and command line with tokens
 * over TLS, and both replaced while a job runs. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "certificates.h"
#include "child.h"
#include "controller_child.h"
#include "ipc_rank.h"
#include "talk.h"
#include "testing.h"

#define HOUR_S 3600

struct setting {
    char dir[64]; /* of files that are not the controller's */
    char ca_file[96];
    char crt_file[96];
    char key_file[96];
    char agent_token[96];
    char boss_token[96];
    struct certificate ca;
    struct certificate own;
    struct controller controller;
    const char *options[8];
    char url[64];
    char socket[64];
    struct child agent;
    int owner_fd;
};

static void path_in(const struct setting *s, const char *name, char out[96]) {
    (void)snprintf(out, 96, "%.60s/%.30s", s->dir, name);
}

static void make_certificates(struct setting *s) {
    const struct certificate_wish authority = {
        .name = "authority", .begin_s = -HOUR_S, .end_s = HOUR_S};
    certificate_make(&authority, &s->ca);
    const struct certificate_wish own = {.issuer = &s->ca,
                                         .name = "controller",
                                         .address = "127.0.0.1",
                                         .begin_s = -HOUR_S,
                                         .end_s = HOUR_S};
    certificate_make(&own, &s->own);
    certificate_write(&s->ca, s->ca_file, NULL);
    certificate_write(&s->own, s->crt_file, s->key_file);
}

/* What a program prints; malloc'ed. `environment` may be NULL. */
static char *run_in(const char *const *argv, const char *const *environment, int *out_status) {
    struct child child;
    child_start(&child, argv, environment, -1, 1);
    *out_status = child_wait(&child);
    char *text = strdup(child.output);
    assert_non_null(text);
    child_free(&child);
    return text;
}

static char *run(const char *const *argv, int *out_status) {
    return run_in(argv, NULL, out_status);
}

/* Makes a token beside the controller and puts it into a file. */
static void make_token(const struct setting *s, const char *name, const char *role, const char *job,
                       const char *path) {
    const char *argv[] = {DEFT_CONTROLLER,
                          "token",
                          "create",
                          "--db",
                          s->controller.db,
                          "--name",
                          name,
                          "--role",
                          role,
                          job != NULL ? "--job" : NULL,
                          job,
                          NULL};
    int status = 0;
    char *token = run(argv, &status);
    assert_int_equal(status, 0);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, token, strlen(token)), strlen(token));
    (void)close(fd);
    free(token);
}

static void set_up(struct setting *s) {
    memset(s, 0, sizeof(*s));
    (void)snprintf(s->dir, sizeof(s->dir), "/tmp/deft-secure-process-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    path_in(s, "ca.pem", s->ca_file);
    path_in(s, "crt.pem", s->crt_file);
    path_in(s, "key.pem", s->key_file);
    path_in(s, "agent", s->agent_token);
    path_in(s, "boss", s->boss_token);
    make_certificates(s);
    s->options[0] = "--tls-cert";
    s->options[1] = s->crt_file;
    s->options[2] = "--tls-key";
    s->options[3] = s->key_file;
    controller_child_prepare(&s->controller, s->options);
    make_token(s, "boss", "operator", NULL, s->boss_token);
    make_token(s, "agent-1", "agent", "job", s->agent_token);
    controller_child_launch(&s->controller);
    (void)snprintf(s->url, sizeof(s->url), "https://127.0.0.1:%u", s->controller.port);
}

static void tear_down(struct setting *s) {
    controller_child_stop(&s->controller);
    certificate_done(&s->own);
    certificate_done(&s->ca);
    (void)unlink(s->ca_file);
    (void)unlink(s->crt_file);
    (void)unlink(s->key_file);
    (void)unlink(s->agent_token);
    (void)unlink(s->boss_token);
    assert_int_equal(rmdir(s->dir), 0);
}

static void start_agent(struct setting *s, const char *ca_file) {
    int fds[2];
    char byte;
    (void)snprintf(s->socket, sizeof(s->socket), "@secure-process-%ld", (long)getpid());
    const char *argv[] = {DEFT_AGENT, "--socket",     s->socket,          "--controller",
                          s->url,     "--token-file", s->agent_token,     "--ca-file",
                          ca_file,    "--ready-fd=3", "--exit-with-fd=3", NULL};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    child_start(&s->agent, argv, NULL, fds[1], 1);
    (void)close(fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    s->owner_fd = fds[0];
}

static void stop_agent(struct setting *s) {
    (void)close(s->owner_fd);
    assert_int_equal(child_wait(&s->agent), 0);
    child_free(&s->agent);
}

/* Waits until the command line says that the job has so many iterations. */
static void await_iterations(const struct setting *s, unsigned n) {
    const char *argv[] = {DEFT,       "job",          "--json",      "--controller",
                          s->url,     "--token-file", s->boss_token, "--ca-file",
                          s->ca_file, "job",          NULL};
    int64_t deadline_ns = clock_monotonic_ns() + testing_deadline_ns(60);
    double got = -1;
    int status = 0;
    char *text = NULL;
    while (got < n && clock_monotonic_ns() < deadline_ns) {
        free(text);
        text = run(argv, &status);
        got = status == 0 ? talk_number(text, "iterations") : -1;
    }
    if (got != n) {
        fail_msg("the job has %g iterations, expected %u: %s", got, n, text);
    }
    free(text);
}

static void jobs_are_followed_over_tls(void **unused) {
    struct setting s;
    struct ipc_rank rank;
    int status = 0;
    (void)unused;
    set_up(&s);
    start_agent(&s, s.ca_file);
    ipc_rank_join(&rank, s.socket, 0, 1, "job", "job/1");
    ipc_rank_iterations(&rank, 0, 100, 0);
    await_iterations(&s, 100);
    /* Without a token, and without knowing the authority. */
    const char *wrong[] = {DEFT, "jobs", "--controller", s.url, "--ca-file", s.ca_file, NULL};
    char *text = run(wrong, &status);
    assert_int_equal(status, 1);
    assert_non_null(strstr(text, "HTTP 401"));
    free(text);
    const char *stranger[] = {DEFT,         "jobs", "--controller", s.url, "--token-file",
                              s.boss_token, NULL};
    text = run(stranger, &status);
    assert_int_equal(status, 1);
    assert_null(strstr(text, "HTTP"));
    free(text);
    ipc_rank_leave(&rank);
    stop_agent(&s);
    tear_down(&s);
}

/* Reports wait while the agent's token is refused, and go on when there is a new one in its file.
 */
static void tokens_are_replaced_while_a_job_runs(void **unused) {
    struct setting s;
    struct ipc_rank rank;
    int status = 0;
    (void)unused;
    set_up(&s);
    start_agent(&s, s.ca_file);
    ipc_rank_join(&rank, s.socket, 0, 1, "job", "job/1");
    ipc_rank_iterations(&rank, 0, 50, 0);
    await_iterations(&s, 50);
    const char *revoke[] = {DEFT,       "token",     "revoke",  "agent-1",      "--controller",
                            s.url,      "--ca-file", s.ca_file, "--token-file", s.boss_token,
                            "--reason", "rotation",  NULL};
    free(run(revoke, &status));
    assert_int_equal(status, 0);
    ipc_rank_iterations(&rank, 50, 50, 0);
    child_await_output(&s.agent, "HTTP 401");
    await_iterations(&s, 50);
    make_token(&s, "agent-2", "agent", "job", s.agent_token);
    await_iterations(&s, 100);
    ipc_rank_leave(&rank);
    stop_agent(&s);
    tear_down(&s);
}

static void certificates_are_replaced_while_a_job_runs(void **unused) {
    struct setting s;
    struct ipc_rank rank;
    (void)unused;
    set_up(&s);
    start_agent(&s, s.ca_file);
    ipc_rank_join(&rank, s.socket, 0, 1, "job", "job/1");
    ipc_rank_iterations(&rank, 0, 10, 0);
    await_iterations(&s, 10);
    struct certificate old_ca = s.ca;
    struct certificate old_own = s.own;
    make_certificates(&s);
    assert_int_equal(kill(s.controller.pid, SIGHUP), 0);
    free(controller_child_await_log(&s.controller, "the certificate was read again"));
    await_iterations(&s, 10); /* by the new authority, which the command line reads anew */
    ipc_rank_iterations(&rank, 10, 10, 0);
    await_iterations(&s, 20);
    assert_int_equal(truncate(s.key_file, 10), 0);
    assert_int_equal(kill(s.controller.pid, SIGHUP), 0);
    free(controller_child_await_log(&s.controller, "the old certificate stays in use"));
    ipc_rank_iterations(&rank, 20, 10, 0);
    await_iterations(&s, 30);
    certificate_done(&old_own);
    certificate_done(&old_ca);
    ipc_rank_leave(&rank);
    stop_agent(&s);
    tear_down(&s);
}

static void agents_do_not_talk_to_strangers(void **unused) {
    struct setting s;
    struct ipc_rank rank;
    char *text = NULL;
    int status = 0;
    (void)unused;
    set_up(&s);
    struct certificate stranger;
    const struct certificate_wish wish = {.name = "authority", .begin_s = -60, .end_s = HOUR_S};
    certificate_make(&wish, &stranger);
    certificate_write(&stranger, s.ca_file, NULL);
    start_agent(&s, s.ca_file);
    ipc_rank_join(&rank, s.socket, 0, 1, "job", "job/1");
    ipc_rank_iterations(&rank, 0, 10, 0);
    child_await_output(&s.agent, "the controller at https://127.0.0.1");
    certificate_write(&s.ca, s.ca_file, NULL);
    const char *argv[] = {DEFT,           "jobs",       "--json",    "--controller", s.url,
                          "--token-file", s.boss_token, "--ca-file", s.ca_file,      NULL};
    text = run(argv, &status);
    assert_int_equal(status, 0);
    assert_string_equal(text, "{\"jobs\":[],\"total\":0}\n");
    free(text);
    certificate_done(&stranger);
    ipc_rank_leave(&rank);
    (void)close(s.owner_fd);
    (void)child_wait(&s.agent);
    child_free(&s.agent);
    tear_down(&s);
}

/* The token beside the port file is for the controller of that file, and for no other, even if it
 * is the same one by another name. */
static void the_users_own_controller_is_shown_its_token(void **unused) {
    struct setting s = {0};
    char state[96];
    char port_file[128];
    char token_file[128];
    char home[128];
    char named[64];
    int status = 0;
    (void)unused;
    (void)snprintf(s.dir, sizeof(s.dir), "/tmp/deft-secure-process-XXXXXX");
    assert_non_null(mkdtemp(s.dir));
    path_in(&s, "deft", state);
    assert_int_equal(mkdir(state, 0700), 0);
    (void)snprintf(port_file, sizeof(port_file), "%s/controller.port", state);
    (void)snprintf(token_file, sizeof(token_file), "%s/controller.token", state);
    (void)snprintf(home, sizeof(home), "XDG_STATE_HOME=%s", s.dir);
    s.options[0] = "--port-file";
    s.options[1] = port_file;
    controller_child_prepare(&s.controller, s.options);
    make_token(&s, "me", "viewer", NULL, token_file);
    controller_child_launch(&s.controller);
    int64_t deadline_ns = clock_monotonic_ns() + testing_deadline_ns(30);
    while (access(port_file, F_OK) != 0 && clock_monotonic_ns() < deadline_ns) {
    }
    (void)snprintf(named, sizeof(named), "DEFT_CONTROLLER=http://127.0.0.1:%u", s.controller.port);
    const char *argv[] = {DEFT, "jobs", NULL};
    const char *own[] = {home, "DEFT_CONTROLLER=", "DEFT_TOKEN=", NULL};
    const char *other[] = {home, named, NULL};
    const char *mistaken[] = {home, "DEFT_CONTROLLER=", "DEFT_TOKEN=deft_other", NULL};
    free(run_in(argv, own, &status));
    assert_int_equal(status, 0);
    char *text = run_in(argv, other, &status);
    assert_int_equal(status, 1);
    assert_non_null(strstr(text, "this needs 'Authorization"));
    free(text);
    text = run_in(argv, mistaken, &status);
    assert_int_equal(status, 1);
    assert_non_null(strstr(text, "unknown, expired or revoked"));
    free(text);
    (void)unlink(port_file);
    (void)unlink(token_file);
    assert_int_equal(rmdir(state), 0);
    assert_int_equal(rmdir(s.dir), 0);
    controller_child_stop(&s.controller);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(jobs_are_followed_over_tls),
    cmocka_unit_test(tokens_are_replaced_while_a_job_runs),
    cmocka_unit_test(certificates_are_replaced_while_a_job_runs),
    cmocka_unit_test(agents_do_not_talk_to_strangers),
    cmocka_unit_test(the_users_own_controller_is_shown_its_token),
};
TESTING_MAIN(cases)
