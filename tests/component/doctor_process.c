/* deft doctor against real controllers, sockets and files, good and bad. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "certificates.h"
#include "child.h"
#include "controller_child.h"
#include "scripted_agent.h"
#include "testing.h"

#define DAY_S 86400

struct room {
    char dir[64];
    char state[96]; /* XDG_STATE_HOME=... */
    struct child doctor;
    int status;
};

static void enter(struct room *room) {
    memset(room, 0, sizeof(*room));
    (void)snprintf(room->dir, sizeof(room->dir), "/tmp/deft-doctor-XXXXXX");
    assert_non_null(mkdtemp(room->dir));
    (void)snprintf(room->state, sizeof(room->state), "XDG_STATE_HOME=%s", room->dir);
}

static void leave(struct room *room) {
    child_free(&room->doctor);
    assert_int_equal(rmdir(room->dir), 0);
}

static void path_in(const struct room *room, const char *name, char out[128]) {
    (void)snprintf(out, 128, "%.60s/%.40s", room->dir, name);
}

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* `options` and `variable` (beside XDG_STATE_HOME) may be NULL. Nothing of the surroundings of the
 * test counts. */
static void see(struct room *room, const char *const *options, const char *variable) {
    const char *argv[12] = {DEFT, "doctor"};
    const char *environment[] = {room->state,
                                 "DEFT_CONTROLLER=",
                                 "DEFT_AGENT_SOCKET=",
                                 "DEFT_TOKEN=",
                                 "DEFT_TOKEN_FILE=",
                                 "SLURM_CONF=/nowhere/slurm.conf",
                                 variable,
                                 NULL};
    for (size_t i = 0; options != NULL && options[i] != NULL; i++) {
        assert_true(i < 9);
        argv[2 + i] = options[i];
    }
    child_free(&room->doctor);
    child_start(&room->doctor, argv, environment, -1, 1);
    room->status = child_wait(&room->doctor);
}

/* A finding has this grade, topic, and words. */
static void says(const struct room *room, const char *grade, const char *topic, const char *words) {
    char head[64];
    (void)snprintf(head, sizeof(head), "%-6s %-15s ", grade, topic);
    const char *line = strstr(room->doctor.output, head);
    const char *end = line != NULL ? strchr(line, '\n') : NULL;
    const char *found = line != NULL ? strstr(line, words) : NULL;
    if (end == NULL || found == NULL || found > end) {
        fail_msg("no line '%s... %s' in\n%s", head, words, room->doctor.output);
    }
}

static void nothing_is_there(void **unused) {
    (void)unused;
    struct room room;
    enter(&room);
    see(&room, NULL, "http_proxy=http://proxy:3128");
    assert_int_equal(room.status, 1);
    says(&room, "ok", "deft-agent", DEFT_VERSION_TEXT);
    says(&room, "ok", "deft-controller", DEFT_VERSION_TEXT);
    says(&room, "ok", "libdeft", DEFT_VERSION_TEXT);
    says(&room, "note", "proxy", "http_proxy is set and ignored");
    says(&room, "ok", "state", room.dir);
    says(&room, "-", "agent", "not inside a job");
    says(&room, "note", "slurm", "/nowhere/plugstack.conf cannot be read");
    says(&room, "wrong", "controller", "no controller");
    static const char *const wrong[] = {"--controller", "ftp://x", NULL};
    see(&room, wrong, NULL);
    assert_int_equal(room.status, 1);
    says(&room, "wrong", "controller", "expected http://HOST:PORT");
    static const char *const extra[] = {"please", NULL};
    see(&room, extra, NULL);
    assert_int_equal(room.status, 2);
    leave(&room);
}

static void a_plugstack_is_read(void **unused) {
    (void)unused;
    struct room room;
    char stack[128];
    char plugin[128];
    char text[512];
    enter(&room);
    path_in(&room, "plugstack.conf", stack);
    path_in(&room, "spank_deft.so", plugin);
    const char *options[] = {"--plugstack", stack, NULL};
    write_file(stack, "# optional spank_deft.so\ninclude /x/spank_deft.so\n\n  optional\n");
    see(&room, options, NULL);
    says(&room, "note", "slurm", "does not name spank_deft.so itself");
    (void)snprintf(text, sizeof(text), "optional other.so\noptional\t%s mode=auto # it\n", plugin);
    write_file(stack, text);
    see(&room, options, NULL);
    says(&room, "wrong", "slurm", "No such file");
    write_file(plugin, "");
    see(&room, options, NULL);
    says(&room, "ok", "slurm", "optional");
    (void)snprintf(text, sizeof(text), "required %s", plugin);
    write_file(stack, text);
    see(&room, options, NULL);
    says(&room, "wrong", "slurm", "'required'");
    assert_int_equal(unlink(stack) | unlink(plugin), 0);
    leave(&room);
}

static void an_agent_is_looked_for(void **unused) {
    (void)unused;
    struct room room;
    char path[128];
    char variable[160];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    enter(&room);
    path_in(&room, "agent", path);
    (void)snprintf(variable, sizeof(variable), "DEFT_AGENT_SOCKET=%s", path);
    see(&room, NULL, variable);
    says(&room, "wrong", "agent", "No such file");
    memcpy(address.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    see(&room, NULL, variable);
    says(&room, "wrong", "agent", "Connection refused");
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(chmod(path, 0777), 0);
    see(&room, NULL, variable);
    says(&room, "note", "agent", "mode 0777");
    assert_int_equal(chmod(path, 0600), 0);
    see(&room, NULL, variable);
    says(&room, "ok", "agent", path);
    (void)close(fd);
    assert_int_equal(unlink(path), 0);
    static const char *const abstract[] = {"--socket", "@deft-doctor-nobody", NULL};
    see(&room, abstract, NULL);
    says(&room, "wrong", "agent", "@deft-doctor-nobody: Connection refused");
    leave(&room);
}

static void ranks_are_counted(void **unused) {
    (void)unused;
    struct room room;
    struct controller controller = {0};
    struct scripted_agent agent;
    char url[64];
    enter(&room);
    controller_child_prepare(&controller, NULL);
    controller_child_launch(&controller);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u", controller.port);
    const char *options[] = {"--controller", url, "--job", "12.3", NULL};
    see(&room, options, NULL);
    assert_int_equal(room.status, 1);
    says(&room, "ok", "controller", "is well");
    says(&room, "ok", "clock", "as the controller's");
    says(&room, "ok", "access", "jobs can be seen");
    says(&room, "wrong", "job", "there is no such job");
    scripted_agent_start(&agent, &controller, "12.3", scripted_agent_decaying);
    see(&room, options, NULL);
    says(&room, "wrong", "ranks", "0 of 2 ranks are heard; the first that is not is rank 0");
    scripted_agent_run(&agent, 8);
    see(&room, options, NULL);
    says(&room, "ok", "ranks", "all 2 are heard");
    assert_int_equal(room.status, 0);
    controller_child_stop(&controller);
    leave(&room);
}

/* The doctor's clock is set back and forth by libfaketime, which sanitizers do not stand. */
static void a_wrong_clock_is_told(void **unused) {
    (void)unused;
    struct room room;
    struct controller controller = {0};
    char url[64];
    static const char *const offs[][3] = {{"-3600", "wrong", "s behind the controller's"},
                                          {"+20", "note", "s ahead of the controller's"}};
    if (access("/usr/bin/faketime", X_OK) != 0 || getenv("DEFT_TEST_SLOWNESS") != NULL) {
        testing_skip("no faketime, or a build with sanitizers");
    }
    enter(&room);
    controller_child_prepare(&controller, NULL);
    controller_child_launch(&controller);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u", controller.port);
    for (size_t i = 0; i < 2; i++) {
        const char *argv[] = {"/usr/bin/faketime", "-f", offs[i][0], DEFT, "doctor",
                              "--controller",      url,  NULL};
        const char *environment[] = {room.state, "DEFT_TOKEN=", "DEFT_TOKEN_FILE=", NULL};
        child_free(&room.doctor);
        child_start(&room.doctor, argv, environment, -1, 1);
        room.status = child_wait(&room.doctor);
        says(&room, offs[i][1], "clock", offs[i][2]);
        assert_int_equal(room.status, i == 0);
    }
    controller_child_stop(&controller);
    leave(&room);
}

/* Where there is a token, every request needs one. */
static void make_token(const struct controller *controller, const char *path) {
    struct child child;
    const char *argv[] = {DEFT_CONTROLLER, "token",  "create", "--db",   controller->db,
                          "--name",        "viewer", "--role", "viewer", NULL};
    child_start(&child, argv, NULL, -1, 1);
    assert_int_equal(child_wait(&child), 0);
    write_file(path, child.output);
    child_free(&child);
}

static void certificates_and_tokens_are_checked(void **unused) {
    (void)unused;
    struct room room;
    struct controller controller = {0};
    struct certificate ca;
    struct certificate own;
    char files[3][128]; /* authority, certificate, key */
    char token[128];
    char variable[160];
    char url[64];
    const struct certificate_wish authority = {
        .name = "authority", .begin_s = -DAY_S, .end_s = 90 * DAY_S};
    enter(&room);
    path_in(&room, "ca.pem", files[0]);
    path_in(&room, "crt.pem", files[1]);
    path_in(&room, "key.pem", files[2]);
    path_in(&room, "token", token);
    certificate_make(&authority, &ca);
    const struct certificate_wish wish = {.issuer = &ca,
                                          .name = "controller",
                                          .address = "127.0.0.1",
                                          .begin_s = -DAY_S,
                                          .end_s = 5 * DAY_S + DAY_S / 2};
    certificate_make(&wish, &own);
    certificate_write(&ca, files[0], NULL);
    certificate_write(&own, files[1], files[2]);
    const char *listens[] = {"--tls-cert", files[1], "--tls-key", files[2], NULL};
    controller_child_prepare(&controller, listens);
    make_token(&controller, token);
    controller_child_launch(&controller);
    (void)snprintf(url, sizeof(url), "https://127.0.0.1:%u", controller.port);
    const char *options[] = {"--controller", url, "--ca-file", files[0], NULL};
    const char *strange[] = {"--controller", url, NULL};
    (void)snprintf(variable, sizeof(variable), "DEFT_TOKEN_FILE=%s", token);
    assert_int_equal(chmod(token, 0600), 0);
    see(&room, options, variable);
    says(&room, "note", "certificate", "good for 5 more days");
    says(&room, "ok", "token", token);
    says(&room, "ok", "access", "jobs can be seen");
    assert_int_equal(room.status, 0);
    see(&room, strange, variable);
    says(&room, "wrong", "controller", "certificate");
    write_file(token, "nobody-made-this-token\n");
    assert_int_equal(chmod(token, 0644), 0);
    see(&room, options, variable);
    says(&room, "note", "token", "mode 0644");
    says(&room, "wrong", "access", "HTTP 401");
    assert_int_equal(room.status, 1);
    assert_int_equal(unlink(token), 0);
    see(&room, options, variable);
    says(&room, "wrong", "token", "No such file");
    says(&room, "wrong", "controller", "token file");
    controller_child_stop(&controller);
    certificate_done(&own);
    certificate_done(&ca);
    assert_int_equal(unlink(files[0]) | unlink(files[1]) | unlink(files[2]), 0);
    leave(&room);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(nothing_is_there),       cmocka_unit_test(a_plugstack_is_read),
    cmocka_unit_test(an_agent_is_looked_for), cmocka_unit_test(ranks_are_counted),
    cmocka_unit_test(a_wrong_clock_is_told),  cmocka_unit_test(certificates_and_tokens_are_checked),
};
TESTING_MAIN(cases)
