/* kill -9 under load, again and again, with the disk full now and then: every report that was
 * acknowledged is there once, and none is there in part.
 *
 * DEFT_TEST_KILLS: how many kills, 20 without it. DEFT_TEST_HISTORY_MB: of another job's rows that
 * are there before the first, none without it. DEFT_TEST_START_MS: how long a start may take (times
 * DEFT_TEST_SLOWNESS), any time without it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "controller_child.h"
#include "store_world.h"
#include "talk.h"
#include "testing.h"

#define N_JOBS       3u
#define N_RANKS      2u /* an agent each */
#define N_AGENTS     (N_JOBS * N_RANKS)
#define N_ITERATIONS 10u /* of a report */
#define N_OPS        3u
#define HUGE_BYTES   ((rlim_t)1 << 40)
/* Of the job with a history: 95 bytes a row. */
#define OLD_RANKS       100
#define OLD_PER_MB      (1000000 / (95 * OLD_RANKS))
#define OLD_INCARNATION (N_JOBS + 1)

/* One agent: a report at a time, the next one when it has been acknowledged. */
struct agent {
    uint32_t job;
    uint32_t rank;
    uint64_t acknowledged;
    int fd; /* -1: not connected */
    size_t n_sent;
    size_t n_bytes;
    char request[4096];
    size_t n_received;
    char answer[4096];
};
struct load {
    struct controller c;
    uint64_t random;
    uint64_t n_acknowledged;
    uint64_t n_refused;
    int64_t slowest_start_ns;
    struct agent agents[N_AGENTS];
};

/* --- agents -------------------------------------------------------------------------------------
 */

static void write_report(struct agent *agent) {
    char body[3000];
    uint64_t seq = agent->acknowledged + 1;
    size_t n =
        (size_t)snprintf(body, sizeof(body), "{\"agent\":\"a%u\",\"seq\":%llu,\"iterations\":[",
                         agent->rank, (unsigned long long)seq);
    for (uint32_t i = 0; i < N_ITERATIONS; i++) {
        n += (size_t)snprintf(
            body + n, sizeof(body) - n, "%s[%u,%llu,0,100,200,3,4,5,312,64,1.5,null,null,1,0,1,0]",
            i > 0 ? "," : "", agent->rank, (unsigned long long)((seq - 1) * N_ITERATIONS) + i);
    }
    n += (size_t)snprintf(body + n, sizeof(body) - n, "],\"ops\":[");
    for (uint32_t i = 0; i < N_OPS; i++) {
        n += (size_t)snprintf(body + n, sizeof(body) - n, "%s[%u,0,%u,2,10,20,30]",
                              i > 0 ? "," : "", agent->rank, 1024u << i);
    }
    n += (size_t)snprintf(body + n, sizeof(body) - n,
                          "],\"events\":[{\"rank\":%u,\"kind\":\"dropped\",\"count\":%llu}]}",
                          agent->rank, (unsigned long long)seq);
    agent->n_bytes =
        (size_t)snprintf(agent->request, sizeof(agent->request),
                         "POST /api/v1/incarnations/i%u/reports HTTP/1.1\r\nHost: localhost\r\n"
                         "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                         agent->job + 1, n, body);
    agent->n_sent = 0;
    agent->n_received = 0;
}

static void hang_up(struct agent *agent) {
    if (agent->fd >= 0) {
        (void)close(agent->fd);
    }
    agent->fd = -1;
}

static void call(struct load *load, struct agent *agent) {
    agent->fd = talk_connect(load->c.port);
    assert_int_equal(fcntl(agent->fd, F_SETFL, O_NONBLOCK), 0);
    write_report(agent);
}

/* 1 when an answer is complete; its status in `*out`. */
static int has_answer(struct agent *agent, int *out) {
    agent->answer[agent->n_received] = '\0';
    const char *end = strstr(agent->answer, "\r\n\r\n");
    const char *length = strcasestr(agent->answer, "content-length:");
    if (end == NULL || length == NULL ||
        agent->n_received < (size_t)(end + 4 - agent->answer) + strtoul(length + 15, NULL, 10)) {
        return 0;
    }
    *out = (int)strtol(agent->answer + strlen("HTTP/1.1 "), NULL, 10);
    return 1;
}

/* Writes and reads what can be written and read. */
static void serve(struct load *load, struct agent *agent) {
    int status = 0;
    while (agent->n_sent < agent->n_bytes) {
        ssize_t n = send(agent->fd, agent->request + agent->n_sent, agent->n_bytes - agent->n_sent,
                         MSG_NOSIGNAL);
        if (n <= 0) {
            break;
        }
        agent->n_sent += (size_t)n;
    }
    ssize_t n = recv(agent->fd, agent->answer + agent->n_received,
                     sizeof(agent->answer) - 1 - agent->n_received, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN)) {
        hang_up(agent);
        return;
    }
    agent->n_received += n > 0 ? (size_t)n : 0;
    if (!has_answer(agent, &status)) {
        return;
    }
    assert_true(status == 200 || status == 503);
    agent->acknowledged += status == 200;
    load->n_acknowledged += status == 200;
    load->n_refused += status == 503;
    write_report(agent);
}

/* Until so many have been acknowledged, or refused, and then for a moment more. */
static void run_load(struct load *load, uint64_t n_answers) {
    uint64_t until = load->n_acknowledged + load->n_refused + n_answers;
    int64_t deadline_ns = clock_monotonic_ns() + testing_deadline_ns(60);
    while (load->n_acknowledged + load->n_refused < until) {
        struct pollfd waits[N_AGENTS];
        for (uint32_t i = 0; i < N_AGENTS; i++) {
            struct agent *agent = &load->agents[i];
            if (agent->fd < 0) {
                call(load, agent);
            }
            waits[i] = (struct pollfd){.fd = agent->fd, .events = POLLIN};
            if (agent->n_sent < agent->n_bytes) {
                waits[i].events |= POLLOUT;
            }
        }
        assert_true(poll(waits, sizeof(waits) / sizeof(waits[0]), 1000) >= 0);
        for (uint32_t i = 0; i < N_AGENTS; i++) {
            serve(load, &load->agents[i]);
        }
        assert_true(clock_monotonic_ns() < deadline_ns);
    }
    const struct timespec moment = {.tv_nsec = (long)testing_random_below(&load->random, 3000000)};
    (void)ppoll(NULL, 0, &moment, NULL);
}

/* --- the controller -----------------------------------------------------------------------------
 */

static void start(struct load *load) {
    int64_t begin_ns = clock_monotonic_ns();
    controller_child_launch(&load->c);
    int64_t took_ns = clock_monotonic_ns() - begin_ns;
    load->slowest_start_ns = took_ns > load->slowest_start_ns ? took_ns : load->slowest_start_ns;
}

/* Registers an agent, again and again; what the controller has of it. */
static uint64_t register_agent(struct load *load, const struct agent *agent) {
    char path[128];
    char body[512];
    (void)snprintf(path, sizeof(path), "/api/v1/jobs/job-%u/incarnations", agent->job);
    (void)snprintf(body, sizeof(body),
                   "{\"key\":\"k\",\"agent\":\"a%u\",\"n_ranks\":%u,\"table_hash\":"
                   "\"0000000000000007\",\"local_ranks\":[%u],\"tensors\":[{\"name\":\"w\","
                   "\"elements\":1000,\"dtype\":\"f32\"}],\"links\":[{\"name\":\"mem:a\","
                   "\"probes\":[[4096,20000],[1048576,900000]]}]}",
                   agent->rank, N_RANKS, agent->rank);
    char *answer = talk_expect(load->c.port, "POST", path, body, 201);
    uint64_t committed = (uint64_t)talk_number(answer, "committed_seq");
    free(answer);
    return committed;
}

static void limit_files(struct load *load, rlim_t n_bytes) {
    const struct rlimit limit = {n_bytes, HUGE_BYTES};
    assert_int_equal(prlimit(load->c.pid, RLIMIT_FSIZE, &limit, NULL), 0);
}

/* What was acknowledged is there, and at most the one report that was under way besides. */
static void expect_everything(struct load *load) {
    struct store_world look = {0};
    uint64_t n_reports[N_JOBS] = {0};
    (void)snprintf(look.path, sizeof(look.path), "%.90s", load->c.db);
    for (uint32_t i = 0; i < N_AGENTS; i++) {
        struct agent *agent = &load->agents[i];
        uint64_t committed = register_agent(load, agent);
        if (committed != agent->acknowledged && committed != agent->acknowledged + 1) {
            fail_msg("agent %u of job %u: %llu are there, %llu were acknowledged", agent->rank,
                     agent->job, (unsigned long long)committed,
                     (unsigned long long)agent->acknowledged);
        }
        agent->acknowledged = committed;
        uint64_t n = committed * N_ITERATIONS;
        /* n numbers that sum up so and are all different are those from 0 on. */
        assert_int_equal(store_world_int(&look,
                                         "SELECT count(*) * 1000000007 + sum(iteration) FROM"
                                         " iterations WHERE incarnation = %u AND rank = %u",
                                         agent->job + 1, agent->rank),
                         n > 0 ? n * 1000000007 + n * (n - 1) / 2 : 0);
        n_reports[agent->job] += committed;
        assert_int_equal(store_world_int(&look,
                                         "SELECT coalesce(sum(count), 0) FROM events WHERE"
                                         " incarnation = %u AND agent = 'a%u'",
                                         agent->job + 1, agent->rank),
                         committed * (committed + 1) / 2);
    }
    for (uint32_t job = 0; job < N_JOBS; job++) {
        assert_int_equal(store_world_int(&look,
                                         "SELECT coalesce(sum(n_medians), 0) FROM link_totals"
                                         " WHERE incarnation = %u AND count = 2 * n_medians",
                                         job + 1),
                         n_reports[job] * N_OPS);
    }
}

/* In the end its roll-ups are those of all its rows, whatever upkeep was doing when it was killed.
 */
static void expect_books(struct load *load) {
    struct store_world look = {0};
    (void)snprintf(look.path, sizeof(look.path), "%.90s", load->c.db);
    store_defaults(&look.options);
    look.options.pause_ns = 0;
    assert_int_equal(store_open_with(look.path, &look.options, &look.store, NULL), DEFT_OK);
    store_world_remember(&look);
    store_world_tidy(&look, clock_wall_ns() + 3600 * STORE_WORLD_SECOND_NS);
    store_world_check(&look);
    assert_int_equal(store_world_int(&look, "SELECT sum(n_rolled) FROM upkeep"),
                     store_world_int(&look, "SELECT count(*) FROM (SELECT DISTINCT incarnation,"
                                            " iteration FROM iterations)"));
    store_close(look.store);
    char all[128];
    (void)snprintf(all, sizeof(all), "%.90s.all", load->c.db);
    assert_int_equal(unlink(all), 0);
}

/* 0 when it is not set. */
static long number_of(const char *name) {
    const char *text = getenv(name);
    return text != NULL ? strtol(text, NULL, 10) : 0;
}

/* Rows that upkeep has been through already, written past the controller. */
static void make_history(struct load *load, long mb) {
    struct store_world world = {0};
    int64_t now_ns = clock_wall_ns();
    free(talk_expect(load->c.port, "POST", "/api/v1/jobs/old/incarnations",
                     "{\"key\":\"k\",\"agent\":\"a\",\"n_ranks\":100,\"table_hash\":"
                     "\"0000000000000007\",\"local_ranks\":[0],\"tensors\":[{\"name\":\"w\","
                     "\"elements\":1000,\"dtype\":\"f32\"}],\"links\":[]}",
                     201));
    assert_int_equal(controller_child_halt(&load->c, SIGTERM), 0);
    (void)snprintf(world.path, sizeof(world.path), "%.90s", load->c.db);
    store_world_sql(
        &world,
        "WITH RECURSIVE t (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM t WHERE i < %ld),"
        " r (rank) AS (SELECT 0 UNION ALL SELECT rank + 1 FROM r WHERE rank < %d)"
        " INSERT INTO iterations SELECT %u, i, rank, 3, 50000000 + i, 50000000,"
        " 1000000, 1000000, 1000, 100000000 + i %% 1000, 0, 2.5, 1.0, 0.5, 1, 0, 1, 0,"
        " NULL, 0.001, %lld FROM t, r",
        mb * OLD_PER_MB - 1, OLD_RANKS - 1, OLD_INCARNATION, (long long)now_ns);
    store_world_sql(&world,
                    "INSERT INTO upkeep (incarnation, newest, rolled_to, raw_from, n_rolled, n_raw,"
                    " raw_ns) VALUES (%u, %ld, %ld, 0, %ld, %ld, %lld)",
                    OLD_INCARNATION, mb * OLD_PER_MB - 1, mb * OLD_PER_MB - 1, mb * OLD_PER_MB,
                    mb * OLD_PER_MB, (long long)now_ns);
    struct stat file;
    assert_int_equal(stat(load->c.db, &file), 0);
    print_message("the database has %lld MB before the first kill\n",
                  (long long)file.st_size / 1000000);
    assert_true(file.st_size > mb * 900000);
    start(load);
}

static void kills_lose_nothing(void **unused) {
    static struct load load;
    long n_kills = number_of("DEFT_TEST_KILLS") > 0 ? number_of("DEFT_TEST_KILLS") : 20;
    long history_mb = number_of("DEFT_TEST_HISTORY_MB");
    long start_ms = number_of("DEFT_TEST_START_MS");
    (void)unused;
    load.random = testing_seed();
    controller_child_prepare(&load.c, NULL);
    load.c.file_bytes = HUGE_BYTES; /* a limit that is lowered now and then */
    for (uint32_t i = 0; i < N_AGENTS; i++) {
        load.agents[i] = (struct agent){.job = i / N_RANKS, .rank = i % N_RANKS, .fd = -1};
    }
    start(&load);
    for (uint32_t i = 0; i < N_AGENTS; i++) {
        (void)register_agent(&load, &load.agents[i]);
    }
    if (history_mb > 0) {
        make_history(&load, history_mb);
    }
    load.slowest_start_ns = 0;
    for (long kill = 0; kill < n_kills; kill++) {
        run_load(&load, testing_random_below(&load.random, 150));
        if (kill % 4 == 2) { /* a full disk, that gets room again before or only after the kill */
            limit_files(&load, testing_random_below(&load.random, 200000));
            run_load(&load, testing_random_below(&load.random, 60));
            if (kill % 8 == 2) {
                limit_files(&load, HUGE_BYTES);
                run_load(&load, testing_random_below(&load.random, 60));
            }
        }
        (void)controller_child_halt(&load.c, SIGKILL);
        for (uint32_t i = 0; i < N_AGENTS; i++) {
            hang_up(&load.agents[i]);
        }
        start(&load);
        expect_everything(&load);
    }
    assert_true(load.n_acknowledged > (uint64_t)n_kills * 20);
    assert_true(load.n_refused > 0 || n_kills < 10);
    assert_true(start_ms == 0 || load.slowest_start_ns < testing_deadline_ns(start_ms) / 1000);
    (void)controller_child_halt(&load.c, SIGTERM);
    if (history_mb == 0) { /* else they take longer than all the rest */
        expect_books(&load);
    }
    print_message("%ld kills, %llu reports acknowledged, %llu refused, slowest start %.0f ms\n",
                  n_kills, (unsigned long long)load.n_acknowledged,
                  (unsigned long long)load.n_refused, (double)load.slowest_start_ns / 1e6);
    controller_child_clean(&load.c);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(kills_lose_nothing),
};
TESTING_MAIN(cases)
