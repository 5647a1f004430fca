/* Who may connect, what a stale socket is, and who is left alone. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ipc/ipc.h"
#include "testing.h"

/* A fresh folder; returns the path of a socket in it. */
static void make_folder(char folder[32], char path[64]) {
    (void)snprintf(folder, 32, "/tmp/ipc_sockets.XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, 64, "%s/socket", folder);
}

static void remove_folder(const char *folder, const char *path) {
    (void)unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

static void round_trip(const char *path) {
    int listen_fd = -1;
    int rank_fd = -1;
    int agent_fd = -1;
    struct deft_error error;
    assert_int_equal(ipc_listen(path, &listen_fd, &error), DEFT_OK);
    assert_int_equal(ipc_accept(listen_fd, &agent_fd, &error), DEFT_TIMEOUT);
    assert_int_equal(ipc_connect(path, &rank_fd, &error), DEFT_OK);
    assert_int_equal(ipc_accept(listen_fd, &agent_fd, &error), DEFT_OK);
    int fds[3] = {listen_fd, rank_fd, agent_fd};
    for (int i = 0; i < 3; i++) {
        assert_true((fcntl(fds[i], F_GETFL) & O_NONBLOCK) != 0);
        assert_true((fcntl(fds[i], F_GETFD) & FD_CLOEXEC) != 0);
    }
    assert_int_equal(ipc_send(rank_fd, IPC_READY, NULL, 0, NULL, 0, 1000, &error), DEFT_OK);
    struct ipc_reader reader = {0};
    uint16_t type = 0;
    const void *payload;
    size_t n_bytes;
    assert_int_equal(ipc_reader_fill(&reader, agent_fd, &error), DEFT_OK);
    assert_int_equal(ipc_reader_next(&reader, &type, &payload, &n_bytes, &error), 1);
    assert_int_equal(type, IPC_READY);
    ipc_reader_done(&reader);
    /* Somebody answers here, so a second agent is refused, and the first one lives on. */
    int second_fd = -1;
    assert_int_equal(ipc_listen(path, &second_fd, &error), DEFT_STATE);
    assert_int_equal(second_fd, -1);
    (void)close(rank_fd);
    assert_int_equal(ipc_connect(path, &rank_fd, &error), DEFT_OK);
    (void)close(rank_fd);
    (void)close(agent_fd);
    (void)close(listen_fd);
}

static void a_path_is_private_and_replaced_when_stale(void **unused) {
    (void)unused;
    char folder[32];
    char path[64];
    struct stat info;
    make_folder(folder, path);
    mode_t mask = umask(0);
    round_trip(path);
    (void)umask(mask);
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISSOCK(info.st_mode));
    assert_int_equal(info.st_mode & 07777, 0600);
    int fd = -1;
    assert_int_equal(ipc_connect(path, &fd, NULL), DEFT_NOT_FOUND);
    assert_int_equal(fd, -1);
    round_trip(path);
    remove_folder(folder, path);
}

static void an_abstract_name_works(void **unused) {
    (void)unused;
    char path[128];
    (void)snprintf(path, sizeof(path), "@deft-test-%ld", (long)getpid());
    round_trip(path);
    int fd = -1;
    assert_int_equal(ipc_connect(path, &fd, NULL), DEFT_NOT_FOUND);
}

static void a_file_in_the_way_is_left_alone(void **unused) {
    (void)unused;
    char folder[32];
    char path[64];
    int fd = -1;
    make_folder(folder, path);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(ipc_listen(path, &fd, NULL), DEFT_INVALID);
    assert_int_equal(access(path, F_OK), 0);
    remove_folder(folder, path);
}

static void names_that_do_not_fit_are_refused(void **unused) {
    (void)unused;
    char path[200];
    int fd = -1;
    struct deft_error error;
    memset(path, 'x', sizeof(path));
    path[0] = '/';
    path[sizeof(((struct sockaddr_un *)0)->sun_path)] = '\0';
    assert_int_equal(ipc_listen(path, &fd, &error), DEFT_INVALID);
    assert_int_equal(ipc_connect(path, &fd, &error), DEFT_INVALID);
    assert_int_equal(ipc_connect("", &fd, &error), DEFT_INVALID);
    assert_int_equal(ipc_connect("@", &fd, &error), DEFT_INVALID);
    assert_int_equal(fd, -1);
}

/* A child of another user; returns its exit status. */
static int as_nobody(int (*body)(const char *path), const char *path) {
    pid_t child = fork();
    if (child == 0) {
        if (setgid(65534) != 0 || setuid(65534) != 0) {
            _exit(99);
        }
        _exit(body(path));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

static int connect_raw(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    memcpy(address.sun_path + 1, path + 1, length - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    socklen_t n_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    char byte;
    if (connect(fd, (const struct sockaddr *)&address, n_bytes) != 0) {
        return 97;
    }
    return recv(fd, &byte, 1, 0) <= 0 ? 0 : 96; /* the agent hangs up */
}

static int connect_checked(const char *path) {
    int fd;
    /* root's agent is trusted, as a system service would be */
    return ipc_connect(path, &fd, NULL) == DEFT_OK ? 0 : 1;
}

static void another_user_is_refused(void **unused) {
    (void)unused;
    char path[128];
    int listen_fd = -1;
    int fd = -1;
    if (geteuid() != 0) {
        testing_skip("changing the user needs root");
    }
    (void)snprintf(path, sizeof(path), "@deft-test-user-%ld", (long)getpid());
    assert_int_equal(ipc_listen(path, &listen_fd, NULL), DEFT_OK);
    pid_t server = fork();
    if (server == 0) {
        struct pollfd poll_fd = {.fd = listen_fd, .events = POLLIN};
        struct deft_error error;
        (void)poll(&poll_fd, 1, 60000);
        _exit(ipc_accept(listen_fd, &fd, &error) == DEFT_INVALID ? 0 : 1);
    }
    assert_int_equal(as_nobody(connect_raw, path), 0);
    int status = 0;
    assert_int_equal(waitpid(server, &status, 0), server);
    assert_int_equal(status, 0);
    assert_int_equal(as_nobody(connect_checked, path), 0);
    (void)close(listen_fd);
}

static int listen_raw(const char *path) {
    int fd;
    int peer;
    char byte;
    if (ipc_listen(path, &fd, NULL) != DEFT_OK || write(STDOUT_FILENO, "1", 1) != 1) {
        return 1;
    }
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    (void)poll(&poll_fd, 1, 60000);
    peer = accept(fd, NULL, NULL);
    return recv(peer, &byte, 1, 0) <= 0 ? 0 : 2;
}

static void another_users_listener_is_refused(void **unused) {
    (void)unused;
    char path[128];
    int pipe_fds[2];
    int fd = -1;
    char byte;
    if (geteuid() != 0) {
        testing_skip("changing the user needs root");
    }
    (void)snprintf(path, sizeof(path), "@deft-test-other-%ld", (long)getpid());
    assert_int_equal(pipe(pipe_fds), 0);
    pid_t server = fork();
    if (server == 0) {
        (void)dup2(pipe_fds[1], STDOUT_FILENO);
        _exit(as_nobody(listen_raw, path));
    }
    assert_int_equal(read(pipe_fds[0], &byte, 1), 1);
    assert_int_equal(ipc_connect(path, &fd, NULL), DEFT_INVALID);
    assert_int_equal(fd, -1);
    int status = 0;
    assert_int_equal(waitpid(server, &status, 0), server);
    assert_int_equal(status, 0);
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_path_is_private_and_replaced_when_stale),
    cmocka_unit_test(an_abstract_name_works),
    cmocka_unit_test(a_file_in_the_way_is_left_alone),
    cmocka_unit_test(names_that_do_not_fit_are_refused),
    cmocka_unit_test(another_user_is_refused),
    cmocka_unit_test(another_users_listener_is_refused),
};
TESTING_MAIN(cases)
