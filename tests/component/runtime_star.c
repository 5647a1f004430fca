/* Bootstrap and watch between processes: who is missing, who is wrong, who has gone. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/star.h"
#include "testing.h"

#define MAX_RANKS 4

/* Seen by parent and children. */
struct board {
    char said[MAX_RANKS][DEFT_ERROR_TEXT_BYTES];
    enum deft_status status[MAX_RANKS];
    int watching[MAX_RANKS];
};

static struct board *make_board(void) {
    struct board *board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(board != MAP_FAILED);
    return board;
}

/* A port that was free a moment ago. */
static uint16_t free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    (void)close(fd);
    return ntohs(address.sin_port);
}

static void wait_for_all(pid_t *children, int n) {
    for (int r = 0; r < n; r++) {
        int status = 0;
        assert_int_equal(waitpid(children[r], &status, 0), children[r]);
    }
}

/* --- meeting ---------------------------------------------------------------------------------- */

static void gather_in_order(int rank, int n, uint16_t port) {
    struct star *star = NULL;
    uint64_t own[3];
    uint64_t all[3 * MAX_RANKS];
    if (star_open("127.0.0.1", port, -1, rank, n, testing_deadline_ns(20), &star, NULL) !=
        DEFT_OK) {
        _exit(1);
    }
    for (uint64_t round = 0; round < 50; round++) {
        for (uint64_t i = 0; i < 3; i++) {
            own[i] = round * 100 + (uint64_t)rank * 10 + i;
        }
        if (star_allgather(star, own, sizeof(own), all) != 0) {
            _exit(2);
        }
        for (uint64_t i = 0; i < 3 * (uint64_t)n; i++) {
            if (all[i] != round * 100 + i / 3 * 10 + i % 3) {
                _exit(3);
            }
        }
    }
    char address[64] = "";
    if ((n > 1) != (star_own_address(star, address, sizeof(address), NULL) == DEFT_OK) ||
        (n > 1 && strcmp(address, "127.0.0.1") != 0)) {
        _exit(4);
    }
    star_close(star, NULL);
    _exit(0);
}

static void all_ranks_gather_in_rank_order(void **state) {
    (void)state;
    for (int n = 1; n <= MAX_RANKS; n++) {
        uint16_t port = free_port();
        pid_t children[MAX_RANKS];
        for (int r = 0; r < n; r++) {
            children[r] = fork();
            if (children[r] == 0) {
                gather_in_order(r, n, port);
            }
        }
        for (int r = 0; r < n; r++) {
            int status = 0;
            assert_int_equal(waitpid(children[r], &status, 0), children[r]);
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
    }
}

static void missing_ranks_are_named(void **state) {
    (void)state;
    struct star *star = NULL;
    struct deft_error error = {.text = ""};
    assert_int_equal(star_open("127.0.0.1", free_port(), -1, 0, 3, 200000000, &star, &error),
                     DEFT_TIMEOUT);
    assert_non_null(strstr(error.text, "1, 2"));
    assert_int_equal(star_open("127.0.0.1", free_port(), -1, 2, 3, 200000000, &star, &error),
                     DEFT_TIMEOUT);
    assert_non_null(strstr(error.text, "rank 2"));
    assert_non_null(strstr(error.text, "127.0.0.1"));
    assert_null(star);
}

/* The second process of rank 1 spoils the job; both rank 0 and the newcomer hear why. */
static void a_rank_that_comes_twice_is_refused(void **state) {
    (void)state;
    struct star *star = NULL;
    struct deft_error error = {.text = ""};
    uint16_t port = free_port();
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            if (star_open("127.0.0.1", port, -1, 1, 3, testing_deadline_ns(20), &star, NULL) ==
                DEFT_OK) {
                char in = 0;
                char out[3];
                (void)star_allgather(star, &in, 1, out);
            }
            _exit(0);
        }
    }
    assert_int_equal(star_open("127.0.0.1", port, -1, 0, 3, testing_deadline_ns(20), &star, &error),
                     DEFT_MISMATCH);
    assert_non_null(strstr(error.text, "twice"));
    wait_for_all(children, 2);
}

/* Connects as soon as somebody listens, says something else, and goes. */
_Noreturn static void be_a_stranger(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    int64_t until_ns = clock_monotonic_ns() + testing_deadline_ns(20);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    while (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0 &&
           clock_monotonic_ns() < until_ns) {
    }
    ssize_t n = write(fd, "GET / HTTP/1.1\r\nHost: me\r\n\r\n....", 32);
    _exit(n == 32 ? 0 : 1);
}

static void a_stranger_on_the_port_is_ignored(void **state) {
    (void)state;
    uint16_t port = free_port();
    pid_t children[3];
    int stranger_left[2]; /* ends when the stranger's copy of the write side closes */
    assert_int_equal(pipe(stranger_left), 0);
    for (int i = 0; i < 3; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            if (i == 2) {
                be_a_stranger(port);
            }
            (void)close(stranger_left[1]);
            char byte = 0;
            if (i == 1 && read(stranger_left[0], &byte, 1) != 0) {
                _exit(5);
            }
            gather_in_order(i, 2, port);
        }
    }
    (void)close(stranger_left[1]);
    for (int i = 0; i < 3; i++) {
        int status = 0;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    (void)close(stranger_left[0]);
}

/* --- watching --------------------------------------------------------------------------------- */

struct watcher {
    struct board *board;
    int rank;
    int pipe[2];
};

static void on_lost(void *context, const struct deft_error *reason) {
    struct watcher *watcher = context;
    memcpy(watcher->board->said[watcher->rank], reason->text, sizeof(reason->text));
    watcher->board->status[watcher->rank] = reason->status;
    ssize_t n = write(watcher->pipe[1], "x", 1);
    (void)n;
}

/* `ends` says how rank 1 leaves: by exit without a word, with a failure, or in order. */
enum ending { DIES, FAILS, LEAVES };

static void watch(int rank, uint16_t port, enum ending ending, struct board *board) {
    struct watcher watcher = {.board = board, .rank = rank};
    struct star *star = NULL;
    char byte = 0;
    if (pipe(watcher.pipe) != 0 ||
        star_open("127.0.0.1", port, -1, rank, 3, testing_deadline_ns(20), &star, NULL) !=
            DEFT_OK ||
        star_watch(star, on_lost, &watcher, NULL) != DEFT_OK) {
        _exit(1);
    }
    if (rank == 1 && ending == DIES) {
        (void)raise(SIGKILL);
    } else if (rank == 1 && ending == FAILS) {
        struct deft_error error;
        (void)deft_fail(&error, DEFT_IO, 0, "the disk of rank 1 burned");
        star_close(star, &error);
    } else if (ending == LEAVES) {
        star_leave(star, testing_deadline_ns(20));
        star_close(star, NULL);
    } else {
        (void)!read(watcher.pipe[0], &byte, 1);
        star_close(star, NULL);
    }
    _exit(0);
}

static void run_watch(enum ending ending, struct board *board) {
    uint16_t port = free_port();
    pid_t children[3];
    for (int r = 0; r < 3; r++) {
        children[r] = fork();
        if (children[r] == 0) {
            watch(r, port, ending, board);
        }
    }
    wait_for_all(children, 3);
}

static void a_dead_rank_is_named_to_all(void **state) {
    (void)state;
    struct board *board = make_board();
    run_watch(DIES, board);
    for (int r = 0; r < 3; r += 2) {
        assert_int_equal(board->status[r], DEFT_PEER_LOST);
        assert_non_null(strstr(board->said[r], "rank 1"));
        assert_non_null(strstr(board->said[r], "is gone"));
    }
}

static void a_failed_rank_tells_why(void **state) {
    (void)state;
    struct board *board = make_board();
    run_watch(FAILS, board);
    for (int r = 0; r < 3; r += 2) {
        assert_int_equal(board->status[r], DEFT_PEER_LOST);
        assert_non_null(strstr(board->said[r], "the disk of rank 1 burned"));
    }
}

static void goodbyes_raise_no_alarm(void **state) {
    (void)state;
    struct board *board = make_board();
    for (int round = 0; round < 10; round++) {
        run_watch(LEAVES, board);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(board->status[r], DEFT_OK);
        }
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(all_ranks_gather_in_rank_order),
    cmocka_unit_test(missing_ranks_are_named),
    cmocka_unit_test(a_rank_that_comes_twice_is_refused),
    cmocka_unit_test(a_stranger_on_the_port_is_ignored),
    cmocka_unit_test(a_dead_rank_is_named_to_all),
    cmocka_unit_test(a_failed_rank_tells_why),
    cmocka_unit_test(goodbyes_raise_no_alarm),
};
TESTING_MAIN(cases)
