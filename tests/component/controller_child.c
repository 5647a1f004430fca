#include "controller_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"

#define CHILD_MAX_OPTIONS 16

_Noreturn static void child_exec(const struct controller *c, int log_fd) {
    const struct rlimit limit = {c->file_bytes, c->file_bytes};
    const char *argv[8 + CHILD_MAX_OPTIONS] = {DEFT_CONTROLLER, "--port", "0",   "--db",
                                               c->db,           "--mode", "auto"};
    char *words[8 + CHILD_MAX_OPTIONS] = {NULL};
    if (c->file_bytes > 0) { /* writes beyond fail, as on a full disk */
        (void)signal(SIGXFSZ, SIG_IGN);
        (void)setrlimit(RLIMIT_FSIZE, &limit);
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed case leaves nothing behind */
    (void)dup2(log_fd, STDERR_FILENO);
    for (size_t i = 0; c->options != NULL && i < CHILD_MAX_OPTIONS; i++) {
        argv[7 + i] = c->options[i];
        if (c->options[i] == NULL) {
            break;
        }
    }
    for (size_t i = 0; argv[i] != NULL; i++) {
        words[i] = strdup(argv[i]);
    }
    (void)execv(DEFT_CONTROLLER, words);
    _exit(127);
}

void controller_child_spawn(struct controller *c) {
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    c->pid = fork();
    assert_true(c->pid >= 0);
    if (c->pid == 0) {
        child_exec(c, ends[1]);
    }
    (void)close(ends[1]);
    c->log_fd = ends[0];
}

char *controller_child_await_log(const struct controller *c, const char *needle) {
    size_t n = 0;
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    while (strstr(text, needle) == NULL || text[n - 1] != '\n') {
        struct pollfd wait = {.fd = c->log_fd, .events = POLLIN};
        if (poll(&wait, 1, (int)(testing_deadline_ns(60) / 1000000)) != 1) {
            fail_msg("the controller has not said '%s', but: %s", needle, text);
        }
        ssize_t got = read(c->log_fd, text + n, 1); /* not a byte beyond the line */
        if (got != 1) {
            fail_msg("the controller ended before it said '%s': %s", needle, text);
        }
        n++;
    }
    return text;
}

void controller_child_launch(struct controller *c) {
    controller_child_spawn(c);
    char *text = controller_child_await_log(c, "listening on ");
    c->port = (uint16_t)strtoul(strstr(text, " port ") + 6, NULL, 10);
    free(text);
}

int controller_child_halt(struct controller *c, int signal_number) {
    int status = 0;
    assert_int_equal(kill(c->pid, signal_number), 0);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    (void)close(c->log_fd);
    return status;
}

void controller_child_prepare(struct controller *c, const char *const *options) {
    memset(c, 0, sizeof(*c));
    c->options = options;
    (void)snprintf(c->dir, sizeof(c->dir), "/tmp/deft-controller-test-XXXXXX");
    assert_non_null(mkdtemp(c->dir));
    (void)snprintf(c->db, sizeof(c->db), "%s/deft.db", c->dir);
}

void controller_child_clean(struct controller *c) {
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock"};
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        char path[128];
        (void)snprintf(path, sizeof(path), "%s%s", c->db, suffixes[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(c->dir), 0); /* nothing else was left there */
}

void controller_child_stop(struct controller *c) {
    int status = controller_child_halt(c, SIGTERM);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    controller_child_clean(c);
}
