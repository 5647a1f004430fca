/* Who may do what with a controller: tokens made beside it and through it, what each role is
 * allowed, what is recorded, and when it refuses to start. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "child.h"
#include "controller_child.h"
#include "scripted_agent.h"
#include "service.h"
#include "talk.h"
#include "testing.h"
#include "wire/wire_access.h"

#define TOKEN_BYTES 64u

/* --- means -------------------------------------------------------------------------------------
 */

/* Runs "deft-controller token ..." on the database; its output, malloc'ed. */
static char *run_token(const struct controller *c, int exit_status, const char *const *words) {
    const char *argv[16] = {DEFT_CONTROLLER, "token", "--db", c->db};
    struct child child;
    size_t n = 4;
    for (; *words != NULL; words++) {
        argv[n++] = *words;
    }
    child_start(&child, argv, NULL, -1, 1);
    int status = child_wait(&child);
    if (status != exit_status) {
        fail_msg("token %s gave %d: %s", argv[4], status, child.output);
    }
    char *text = strdup(child.output);
    assert_non_null(text);
    child_free(&child);
    return text;
}

/* A token of this role, by the program. */
static void make_token(const struct controller *c, const char *name, const char *role,
                       const char *option, const char *value, char out[TOKEN_BYTES]) {
    const char *words[] = {"create", "--name", name, "--role", role, option, value, NULL};
    char *text = run_token(c, 0, words);
    size_t n = strcspn(text, "\n");
    assert_int_equal(strncmp(text, "deft_", 5), 0);
    assert_int_equal(n, 48);
    assert_int_equal(text[n + 1], '\0'); /* one line, and nothing else */
    memcpy(out, text, n);
    out[n] = '\0';
    free(text);
}

static int ask(const struct controller *c, const char *token, const char *method, const char *path,
               const char *body, char **out_body) {
    char line[TOKEN_BYTES + 32] = "";
    struct talk_reply reply;
    if (token != NULL) {
        (void)snprintf(line, sizeof(line), "Authorization: Bearer %s\r\n", token);
    }
    talk_request_with(c->port, line, method, path, body, &reply);
    int status = reply.status;
    if (status == 401) {
        assert_non_null(strstr(reply.head, "WWW-Authenticate: Bearer"));
    }
    if (out_body != NULL) {
        *out_body = reply.body;
        reply.body = NULL;
    }
    talk_reply_done(&reply);
    return status;
}

/* Waits until the token's answer has this status. */
static void await_status(const struct controller *c, const char *token, int status) {
    int64_t deadline_ns = clock_monotonic_ns() + testing_deadline_ns(30);
    int got = 0;
    while (got != status && clock_monotonic_ns() < deadline_ns) {
        got = ask(c, token, "GET", "/api/v1/jobs", NULL, NULL);
    }
    assert_int_equal(got, status);
}

static void start(struct controller *c) {
    controller_child_prepare(c, NULL);
    controller_child_launch(c);
}

/* --- roles --------------------------------------------------------------------------------------
 */

/* Every route, every role: what the table says, and nothing else. */
static void every_route_asks_for_its_role(void **unused) {
    struct controller c;
    char tokens[3][TOKEN_BYTES]; /* as enum access_role */
    (void)unused;
    controller_child_prepare(&c, NULL);
    make_token(&c, "a", "agent", "--job", "j", tokens[ACCESS_AGENT]);
    make_token(&c, "v", "viewer", NULL, NULL, tokens[ACCESS_VIEWER]);
    make_token(&c, "o", "operator", NULL, NULL, tokens[ACCESS_OPERATOR]);
    controller_child_launch(&c);
    for (size_t i = 0; i < service_n_routes; i++) {
        const struct http_route *route = &service_routes[i];
        char path[128];
        const char *body = strcmp(route->method, "GET") == 0 ? NULL : "{}";
        (void)snprintf(path, sizeof(path), "%s", route->pattern);
        for (char *at = path; (at = strchr(at, '{')) != NULL;) { /* a name that there is not */
            char *end = strchr(at, '}');
            memmove(at + 1, end + 1, strlen(end + 1) + 1);
            *at = 'x';
        }
        int is_open = route->need == SERVICE_NOBODY;
        assert_int_equal(ask(&c, NULL, route->method, path, body, NULL) == 401, !is_open);
        assert_int_equal(ask(&c, "deft_wrong", route->method, path, body, NULL) == 401, !is_open);
        for (int role = ACCESS_AGENT; role <= ACCESS_OPERATOR; role++) {
            int status = ask(&c, tokens[role], route->method, path, body, NULL);
            int may = is_open || role == ACCESS_OPERATOR ||
                      (role == ACCESS_VIEWER && route->need == SERVICE_VIEWER) ||
                      /* of an incarnation that there is not: 404, whoever asks */
                      (role == ACCESS_AGENT && route->need == SERVICE_AGENT && status == 404);
            if ((status != 401 && status != 403) != may) {
                fail_msg("role %d got %d from %s %s", role, status, route->method, path);
            }
        }
    }
    controller_child_stop(&c);
}

/* A token of one job, or of jobs that begin alike, speaks for no other. */
static void agents_speak_for_their_own_jobs(void **unused) {
    struct controller c;
    char one[TOKEN_BYTES];
    char many[TOKEN_BYTES];
    char boss[TOKEN_BYTES];
    char path[128];
    struct wire_registered registered;
    char *registration = scripted_agent_registration();
    (void)unused;
    controller_child_prepare(&c, NULL);
    make_token(&c, "one", "agent", "--job", "36199_0", one);
    make_token(&c, "many", "agent", "--job-prefix", "36199_", many);
    make_token(&c, "op", "operator", NULL, NULL, boss);
    controller_child_launch(&c);
    static const struct {
        const char *job;
        int by_one;
        int by_many;
    } jobs[] = {{"36199_0", 201, 201},
                {"36199_1", 403, 201},
                {"36199", 403, 403},
                {"36199_00", 403, 201},
                {"x36199_0", 403, 403}};
    char *answer = NULL;
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        (void)snprintf(path, sizeof(path), "/api/v1/jobs/%s/incarnations", jobs[i].job);
        assert_int_equal(ask(&c, one, "POST", path, registration, NULL), jobs[i].by_one);
        assert_int_equal(ask(&c, many, "POST", path, registration, NULL), jobs[i].by_many);
        assert_int_equal(ask(&c, boss, "POST", path, registration, &answer), 201);
        assert_int_equal(wire_registered_decode(answer, strlen(answer), &registered, NULL),
                         DEFT_OK);
        free(answer);
        (void)snprintf(path, sizeof(path), "/api/v1/incarnations/%.64s/reports",
                       registered.incarnation);
        static const char report[] = "{\"agent\":\"host-1\",\"seq\":1}";
        assert_int_equal(ask(&c, one, "POST", path, report, NULL),
                         jobs[i].by_one == 201 ? 200 : 403);
        assert_int_equal(ask(&c, many, "POST", path, report, NULL),
                         jobs[i].by_many == 201 ? 200 : 403);
        /* What is not an agent's business. */
        (void)snprintf(path, sizeof(path), "/api/v1/jobs/%s", jobs[i].job);
        assert_int_equal(ask(&c, one, "GET", path, NULL, NULL), 403);
    }
    free(registration);
    controller_child_stop(&c);
}

static void credentials_of_every_other_form_are_refused(void **unused) {
    static const char *const forms[] = {
        "Authorization: Basic %s\r\n",      "Authorization: Bearer\r\n",
        "Authorization: Bearer \r\n",       "Authorization: Bearer %s x\r\n",
        "Authorization: Bearer \"%s\"\r\n", "Authorization: %s\r\n",
        "Authorization: Bearer%s\r\n",      "Authorization: Bearer %s\xff\r\n",
        "Authorization: Bearer\t%s\r\n",    "X-Authorization: Bearer %s\r\n"};
    struct controller c;
    char token[TOKEN_BYTES];
    char lines[200];
    struct talk_reply reply;
    (void)unused;
    controller_child_prepare(&c, NULL);
    make_token(&c, "op", "operator", NULL, NULL, token);
    controller_child_launch(&c);
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        const char *hole = strstr(forms[i], "%s");
        int n = hole != NULL ? (int)(hole - forms[i]) : (int)strlen(forms[i]);
        (void)snprintf(lines, sizeof(lines), "%.*s%s%s", n, forms[i], hole != NULL ? token : "",
                       hole != NULL ? hole + 2 : "");
        talk_request_with(c.port, lines, "GET", "/api/v1/jobs", NULL, &reply);
        if (reply.status != 401) {
            fail_msg("%s gave %d", lines, reply.status);
        }
        talk_reply_done(&reply);
    }
    /* Twice is doubtful, even when both are good. */
    (void)snprintf(lines, sizeof(lines), "Authorization: Bearer %s\r\nAuthorization: Bearer %s\r\n",
                   token, token);
    talk_request_with(c.port, lines, "GET", "/api/v1/jobs", NULL, &reply);
    assert_int_equal(reply.status, 400);
    talk_reply_done(&reply);
    (void)snprintf(lines, sizeof(lines), "authorization: bearer  %s\r\n", token);
    talk_request_with(c.port, lines, "GET", "/api/v1/jobs", NULL, &reply);
    assert_int_equal(reply.status, 200);
    talk_reply_done(&reply);
    controller_child_stop(&c);
}

/* --- the life of a token -------------------------------------------------------------------------
 */

static void tokens_made_beside_a_controller_hold_soon(void **unused) {
    struct controller c;
    char token[TOKEN_BYTES];
    char other[TOKEN_BYTES];
    char *text = NULL;
    (void)unused;
    start(&c);
    assert_int_equal(ask(&c, NULL, "GET", "/api/v1/jobs", NULL, NULL), 200); /* open so far */
    make_token(&c, "op", "operator", NULL, NULL, token);
    await_status(&c, NULL, 401);
    await_status(&c, token, 200);
    make_token(&c, "short", "viewer", "--expires", "1s", other);
    await_status(&c, other, 200);
    await_status(&c, other, 401);
    /* It still does after a restart, and only its hash is anywhere. */
    (void)controller_child_halt(&c, SIGKILL);
    controller_child_launch(&c);
    assert_int_equal(ask(&c, token, "GET", "/api/v1/tokens", NULL, &text), 200);
    assert_null(strstr(text, token));
    assert_non_null(strstr(text, "\"state\":\"expired\""));
    free(text);
    static const char *const revoke[] = {"revoke", "op", NULL};
    free(run_token(&c, 0, revoke));
    await_status(&c, token, 401);
    /* None holds now, but the door stays shut. */
    assert_int_equal(ask(&c, NULL, "GET", "/api/v1/jobs", NULL, NULL), 401);
    controller_child_stop(&c);
}

static void a_revoked_token_ends_its_streams(void **unused) {
    struct controller c;
    char boss[TOKEN_BYTES];
    char agent[TOKEN_BYTES];
    char path[160];
    char line[TOKEN_BYTES + 200];
    char *answer = NULL;
    struct wire_registered registered;
    char *registration = scripted_agent_registration();
    (void)unused;
    controller_child_prepare(&c, NULL);
    make_token(&c, "op", "operator", NULL, NULL, boss);
    make_token(&c, "agent", "agent", "--job", "j", agent);
    controller_child_launch(&c);
    assert_int_equal(ask(&c, agent, "POST", "/api/v1/jobs/j/incarnations", registration, &answer),
                     201);
    assert_int_equal(wire_registered_decode(answer, strlen(answer), &registered, NULL), DEFT_OK);
    free(answer);
    (void)snprintf(line, sizeof(line),
                   "GET /api/v1/incarnations/%.64s/events HTTP/1.1\r\nHost: localhost\r\n"
                   "Authorization: Bearer %s\r\n\r\n",
                   registered.incarnation, agent);
    int fd = talk_connect(c.port);
    talk_send(fd, line, strlen(line));
    free(talk_read_until(fd, "event: mode"));
    assert_int_equal(ask(&c, boss, "DELETE", "/api/v1/tokens/agent", NULL, NULL), 200);
    free(talk_read_until(fd, "0\r\n\r\n")); /* the last chunk */
    (void)close(fd);
    (void)snprintf(path, sizeof(path), "/api/v1/incarnations/%.64s/reports",
                   registered.incarnation);
    assert_int_equal(ask(&c, agent, "POST", path, "{\"agent\":\"host-1\",\"seq\":1}", NULL), 401);
    free(registration);
    controller_child_stop(&c);
}

static void operators_manage_tokens(void **unused) {
    static const struct {
        const char *body;
        int status;
    } wishes[] = {{"{\"name\":\"ci\",\"role\":\"viewer\"}", 201},
                  {"{\"name\":\"ci\",\"role\":\"viewer\"}", 409},
                  {"{\"name\":\"a b\",\"role\":\"viewer\"}", 400},
                  {"{\"name\":\"\",\"role\":\"viewer\"}", 400},
                  {"{\"name\":\"x\",\"role\":\"root\"}", 400},
                  {"{\"name\":\"x\",\"role\":\"agent\"}", 400},
                  {"{\"name\":\"x\",\"role\":\"agent\",\"job\":\"a\",\"job_prefix\":\"a\"}", 400},
                  {"{\"name\":\"x\",\"role\":\"viewer\",\"job\":\"a\"}", 400},
                  {"{\"name\":\"x\",\"role\":\"viewer\",\"expires_in_s\":1e30}", 400},
                  {"{\"name\":\"x\",\"role\":\"viewer\",\"expires_in_s\":-1}", 400},
                  {"{\"name\":\"job-1\",\"role\":\"agent\",\"job\":\"\\u00e4 \\\"1\\\"\"}", 201},
                  {"{\"role\":\"viewer\"}", 400},
                  {"[]", 400},
                  {"", 400}};
    struct controller c;
    char boss[TOKEN_BYTES];
    char *text = NULL;
    struct wire_tokens tokens = {0};
    struct wire_token token;
    (void)unused;
    controller_child_prepare(&c, NULL);
    make_token(&c, "op", "operator", NULL, NULL, boss);
    controller_child_launch(&c);
    for (size_t i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++) {
        int status = ask(&c, boss, "POST", "/api/v1/tokens", wishes[i].body, &text);
        if (status != wishes[i].status) {
            fail_msg("%s gave %d: %s", wishes[i].body, status, text);
        }
        if (i == 0) {
            assert_int_equal(wire_token_decode(text, strlen(text), &token, NULL), DEFT_OK);
            assert_int_equal(ask(&c, token.token, "GET", "/api/v1/jobs", NULL, NULL), 200);
            assert_int_equal(ask(&c, token.token, "GET", "/api/v1/tokens", NULL, NULL), 403);
        }
        free(text);
    }
    assert_int_equal(ask(&c, boss, "DELETE", "/api/v1/tokens/none", NULL, NULL), 404);
    for (int i = 0; i < 2; i++) { /* twice is as once */
        assert_int_equal(ask(&c, boss, "DELETE", "/api/v1/tokens/ci", NULL, NULL), 200);
        assert_int_equal(ask(&c, token.token, "GET", "/api/v1/jobs", NULL, NULL), 401);
    }
    assert_int_equal(ask(&c, boss, "GET", "/api/v1/tokens", NULL, &text), 200);
    assert_int_equal(wire_tokens_decode(text, strlen(text), &tokens, NULL), DEFT_OK);
    assert_int_equal(tokens.n_tokens, 3);
    for (uint32_t i = 0; i < tokens.n_tokens; i++) {
        assert_string_equal(tokens.tokens[i].token, "");
    }
    wire_tokens_done(&tokens);
    free(text);
    controller_child_stop(&c);
}

/* --- the record ----------------------------------------------------------------------------------
 */

static void changes_are_recorded_with_who_and_why(void **unused) {
    struct controller c;
    char boss[TOKEN_BYTES];
    char *text = NULL;
    char *registration = scripted_agent_registration();
    (void)unused;
    controller_child_prepare(&c, NULL);
    make_token(&c, "alice", "operator", NULL, NULL, boss);
    controller_child_launch(&c);
    assert_int_equal(ask(&c, boss, "POST", "/api/v1/jobs/j/incarnations", registration, NULL), 201);
    assert_int_equal(ask(&c, boss, "PUT", "/api/v1/jobs/j/mode",
                         "{\"mode\":\"off\",\"reason\":\"night \\\"shift\\\"\"}", NULL),
                     200);
    assert_int_equal(ask(&c, boss, "PUT", "/api/v1/jobs/j/limits",
                         "{\"max_merge\":2,\"max_delay\":3,\"epsilon\":0.02,\"min_progress\":0.6}",
                         NULL),
                     200);
    /* What was refused has changed nothing and is not there. */
    assert_int_equal(ask(&c, boss, "PUT", "/api/v1/jobs/j/mode", "{\"mode\":\"x\"}", NULL), 400);
    assert_int_equal(ask(&c, boss, "PUT", "/api/v1/jobs/none/mode", "{\"mode\":\"off\"}", NULL),
                     404);
    assert_int_equal(ask(&c, boss, "GET", "/api/v1/audit?subject=j", NULL, &text), 200);
    const char *limits = strstr(text, "\"action\":\"job.limits\"");
    const char *mode = strstr(text, "\"action\":\"job.mode\"");
    assert_non_null(limits);
    assert_non_null(mode);
    assert_true(limits < mode); /* newest first */
    assert_non_null(strstr(mode, "\"before\":{\"mode\":\"auto\"},\"after\":{\"mode\":\"off\"},"
                                 "\"reason\":\"night \\\"shift\\\"\""));
    assert_non_null(strstr(limits, "\"max_merge\":3"));
    assert_non_null(strstr(limits, "\"max_merge\":2"));
    assert_non_null(strstr(text, "\"who\":\"alice\",\"source\":\"127.0.0.1:"));
    assert_null(strstr(mode + 1, "\"action\":\"job.mode\""));
    assert_non_null(strstr(text, "\"next\":null"));
    free(text);
    /* Pages. */
    unsigned n_records = 0;
    char path[64] = "/api/v1/audit?limit=1";
    while (path[0] != '\0') {
        assert_int_equal(ask(&c, boss, "GET", path, NULL, &text), 200);
        n_records += strstr(text, "\"action\"") != NULL;
        const char *next = strstr(text, "\"next\":");
        assert_non_null(next);
        path[0] = '\0';
        if (strncmp(next + 7, "null", 4) != 0) {
            (void)snprintf(path, sizeof(path), "/api/v1/audit?limit=1&before=%lu",
                           strtoul(next + 7, NULL, 10));
        }
        free(text);
    }
    assert_int_equal(n_records, 3); /* the token, the mode, the limits */
    free(registration);
    controller_child_stop(&c);
}

/* --- starting ------------------------------------------------------------------------------------
 */

static void expect_refusal(const char *const *options, int exit_status, const char *says) {
    struct controller c;
    int status = 0;
    controller_child_prepare(&c, options);
    controller_child_spawn(&c);
    free(controller_child_await_log(&c, says));
    assert_int_equal(waitpid(c.pid, &status, 0), c.pid);
    (void)close(c.log_fd);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), exit_status);
    controller_child_clean(&c);
}

static void other_hosts_are_served_with_a_token_only(void **unused) {
    static const char *const everywhere[] = {"--listen", "0.0.0.0", NULL};
    static const char *const everywhere6[] = {"--listen", "::", NULL};
    static const char *const mapped[] = {"--listen", "::ffff:0.0.0.0", NULL};
    struct controller c;
    char token[TOKEN_BYTES];
    (void)unused;
    expect_refusal(everywhere, 1, "there is no access token that holds");
    expect_refusal(everywhere6, 1, "there is no access token that holds");
    expect_refusal(mapped, 1, "there is no access token that holds");
    controller_child_prepare(&c, everywhere);
    make_token(&c, "op", "operator", NULL, NULL, token);
    controller_child_launch(&c);
    assert_int_equal(ask(&c, NULL, "GET", "/api/v1/jobs", NULL, NULL), 401);
    assert_int_equal(ask(&c, NULL, "GET", "/healthz", NULL, NULL), 200);
    assert_int_equal(ask(&c, token, "GET", "/api/v1/jobs", NULL, NULL), 200);
    (void)controller_child_halt(&c, SIGTERM);
    static const char *const revoke[] = {"revoke", "op", NULL};
    free(run_token(&c, 0, revoke));
    controller_child_spawn(&c); /* with a token that holds no more */
    free(controller_child_await_log(&c, "there is no access token that holds"));
    int status = 0;
    assert_int_equal(waitpid(c.pid, &status, 0), c.pid);
    (void)close(c.log_fd);
    controller_child_clean(&c);
}

static void half_of_a_tls_setup_is_refused(void **unused) {
    static const char *const no_key[] = {"--tls-cert", "/dev/null", NULL};
    static const char *const no_cert[] = {"--tls-key", "/dev/null", NULL};
    static const char *const only_ca[] = {"--tls-client-ca", "/dev/null", NULL};
    static const char *const no_file[] = {"--tls-cert", "/nonexistent/c", "--tls-key",
                                          "/nonexistent/k", NULL};
    static const char *const empty[] = {"--tls-cert", "/dev/null", "--tls-key", "/dev/null", NULL};
    (void)unused;
    expect_refusal(no_key, 2, "belong together");
    expect_refusal(no_cert, 2, "belong together");
    expect_refusal(only_ca, 2, "needs --tls-cert");
    expect_refusal(no_file, 1, "cannot be read");
    expect_refusal(empty, 1, "is not a chain");
}

static void write_secret(const char *path, const char *text) {
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fprintf(file, "%s\n", text) > 0);
    assert_int_equal(fclose(file), 0);
}

/* What a chart's Secret has, at every start. */
static void a_token_from_a_file_is_stored_once(void **unused) {
    static const char secret[] = "deft_0123456789abcdefghijABCDEFGHIJ0123456789-_x";
    static const char *const unfit[] = {"", "deft_short",
                                        "0123456789abcdefghijABCDEFGHIJ0123456789-_xdeft_",
                                        "deft_0123456789abcdefghijABCDEFGHIJ0123456789-_xy",
                                        "deft_0123456789abcdefghijABCDEFGHIJ0123456789-_ "};
    struct controller c;
    char path[PATH_MAX];
    char name[64] = "";
    (void)unused;
    controller_child_prepare(&c, NULL);
    (void)snprintf(path, sizeof(path), "%.3900s.secret", c.db);
    const char *words[] = {"create",   "--name",      "chart", "--role",
                           "operator", "--from-file", path,    NULL};
    write_secret(path, secret);
    char *first = run_token(&c, 0, words);
    assert_int_equal(strncmp(first, "chart-", 6), 0);
    assert_non_null(strstr(first, " is made, live\n"));
    assert_null(strstr(first, secret));
    memcpy(name, first, strcspn(first, " "));
    free(first);
    char *again = run_token(&c, 0, words);
    assert_non_null(strstr(again, " is there, live\n"));
    free(again);
    controller_child_launch(&c);
    assert_int_equal(ask(&c, secret, "GET", "/api/v1/tokens", NULL, NULL), 200);
    const char *end[] = {"revoke", name, NULL};
    free(run_token(&c, 0, end));
    again = run_token(&c, 0, words); /* it does not come back */
    assert_non_null(strstr(again, " is there, revoked\n"));
    free(again);
    await_status(&c, secret, 401);
    words[4] = "viewer"; /* nor as something else */
    free(run_token(&c, 1, words));
    for (size_t i = 0; i < sizeof(unfit) / sizeof(unfit[0]); i++) {
        write_secret(path, unfit[i]);
        char *said = run_token(&c, 1, words);
        assert_non_null(strstr(said, "43 random letters, digits, - or _"));
        free(said);
    }
    (void)unlink(path);
    free(run_token(&c, 1, words));
    controller_child_stop(&c);
}

static void wrong_token_commands_are_refused(void **unused) {
    static const char *const none[] = {NULL};
    static const char *const unknown[] = {"destroy", NULL};
    static const char *const nameless[] = {"create", "--role", "viewer", NULL};
    static const char *const forever[] = {"create", "--name",    "x",   "--role",
                                          "viewer", "--expires", "99y", NULL};
    static const char *const absent[] = {"revoke", "nobody", NULL};
    static const char *const jobless[] = {"create", "--name", "x", "--role", "agent", NULL};
    struct controller c;
    (void)unused;
    controller_child_prepare(&c, NULL);
    free(run_token(&c, 2, none));
    free(run_token(&c, 2, unknown));
    free(run_token(&c, 2, nameless));
    free(run_token(&c, 2, forever));
    free(run_token(&c, 2, jobless));
    free(run_token(&c, 1, absent));
    controller_child_clean(&c);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(every_route_asks_for_its_role),
    cmocka_unit_test(agents_speak_for_their_own_jobs),
    cmocka_unit_test(credentials_of_every_other_form_are_refused),
    cmocka_unit_test(tokens_made_beside_a_controller_hold_soon),
    cmocka_unit_test(a_revoked_token_ends_its_streams),
    cmocka_unit_test(operators_manage_tokens),
    cmocka_unit_test(changes_are_recorded_with_who_and_why),
    cmocka_unit_test(other_hosts_are_served_with_a_token_only),
    cmocka_unit_test(half_of_a_tls_setup_is_refused),
    cmocka_unit_test(a_token_from_a_file_is_stored_once),
    cmocka_unit_test(wrong_token_commands_are_refused),
};
TESTING_MAIN(cases)
