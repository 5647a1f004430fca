/* The agent's settings, as a service manager gives them: a file, variables, and nothing on the
 * command line that could be elsewhere. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "child.h"
#include "testing.h"

struct world {
    char dir[64];
    char file[96];
};

static void prepare(struct world *w, const char *text) {
    (void)snprintf(w->dir, sizeof(w->dir), "/tmp/deft-agent-config-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    (void)snprintf(w->file, sizeof(w->file), "%s/a.conf", w->dir);
    FILE *file = fopen(w->file, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void clean(const struct world *w) {
    assert_int_equal(unlink(w->file), 0);
    assert_int_equal(rmdir(w->dir), 0);
}

/* Runs to the end; what it printed, malloc'ed. */
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

static void expect(const char *text, const char *part) {
    if (strstr(text, part) == NULL) {
        fail_msg("'%s' is not in %s", part, text);
    }
}

static void file_and_variables_are_enough(void **unused) {
    struct world w;
    struct child child;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char notice[128];
    char variable[128];
    char text[32] = "";
    (void)unused;
    prepare(&w, "controller = http://127.0.0.1:9\nspool-bytes = 0\nverbose = yes\n");
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", w.dir);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    struct timeval patience = {.tv_sec = testing_deadline_ns(20) / 1000000000};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    (void)snprintf(notice, sizeof(notice), "NOTIFY_SOCKET=%s", address.sun_path);
    (void)snprintf(variable, sizeof(variable), "DEFT_AGENT_SOCKET=%s/agent", w.dir);
    const char *const environment[] = {notice, variable, NULL};
    const char *const argv[] = {DEFT_AGENT, "--config", w.file, NULL};
    child_start(&child, argv, environment, -1, 1);
    assert_int_equal(recv(fd, text, sizeof(text) - 1, 0), strlen("READY=1"));
    assert_string_equal(text, "READY=1");
    assert_int_equal(access(variable + strlen("DEFT_AGENT_SOCKET="), F_OK), 0);
    assert_int_equal(kill(child.pid, SIGTERM), 0);
    assert_int_equal(child_wait(&child), 0);
    expect(child.output, "for http://127.0.0.1:9");
    child_free(&child);
    (void)close(fd);
    assert_int_equal(unlink(address.sun_path), 0);
    clean(&w);
}

static void wrong_settings_are_one_sentence(void **unused) {
    struct world w;
    (void)unused;
    prepare(&w, "controller = http://127.0.0.1:9\nready-fd = 3\n");
    const char *const check[] = {DEFT_AGENT, "--check-config", "--config", w.file, NULL};
    const char *const bare[] = {DEFT_AGENT, "--check-config", NULL};
    static const char *const half[] = {"DEFT_AGENT_CONTROLLER=http://127.0.0.1:9", NULL};
    static const char *const both[] = {"DEFT_AGENT_CONTROLLER=http://127.0.0.1:9",
                                       "DEFT_AGENT_SOCKET=@x", NULL};
    static const char *const stray[] = {"DEFT_AGENT_SOCKETS=@x", NULL};
    static const char *const large[] = {"DEFT_AGENT_MAX_MERGE=65", NULL};
    char says[160];
    (void)snprintf(says, sizeof(says),
                   "deft-agent: %s:2: ready-fd belongs on the command line only\n", w.file);
    char *text = run(check, NULL, 2);
    assert_string_equal(text, says);
    free(text);
    text = run(bare, half, 2);
    assert_string_equal(text, "deft-agent: --socket and --controller are needed\n");
    free(text);
    text = run(bare, stray, 2);
    expect(text, "DEFT_AGENT_SOCKETS is in the environment, but is no setting of deft-agent\n");
    free(text);
    text = run(bare, large, 2);
    expect(text, "DEFT_AGENT_MAX_MERGE is '65', expected a whole number from 1 to 64\n");
    free(text);
    text = run(bare, both, 0);
    assert_string_equal(text, "");
    free(text);
    clean(&w);
}

static void a_password_is_not_printed(void **unused) {
    const char *const argv[] = {
        DEFT_AGENT, "--print-config",           "--socket", "@x", "--controller", "http://h:1",
        "--proxy",  "http://user:hush@proxy:1", NULL};
    (void)unused;
    char *text = run(argv, NULL, 0);
    expect(text, "\nsocket = @x\n");
    expect(text, "\n# proxy is set, and not shown\n");
    assert_null(strstr(text, "hush"));
    free(text);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(file_and_variables_are_enough),
    cmocka_unit_test(wrong_settings_are_one_sentence),
    cmocka_unit_test(a_password_is_not_printed),
};
TESTING_MAIN(cases)
