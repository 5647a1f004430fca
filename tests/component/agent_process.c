/* The real agent between ranks that speak the protocol and a controller that has faults. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "child.h"
#include "controller_peer.h"
#include "ipc_rank.h"
#include "testing.h"

struct setting {
    struct controller_peer *peer;
    struct child agent;
    char socket[64];
    char url[64];
    int owner_fd;
};

static void start_agent(struct setting *setting, const char *extra) {
    int fds[2];
    char byte;
    (void)snprintf(setting->socket, sizeof(setting->socket), "@agent-process-%ld", (long)getpid());
    const char *argv[] = {
        DEFT_AGENT, "--socket",     setting->socket,    "--controller", setting->url,      "--mode",
        "auto",     "--ready-fd=3", "--exit-with-fd=3", "--verbose",    "--spool-bytes=0", extra,
        NULL};
    const char *environment[] = {"http_proxy=http://127.0.0.1:9", "all_proxy=http://127.0.0.1:9",
                                 NULL};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    child_start(&setting->agent, argv, environment, fds[1], 1);
    (void)close(fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    setting->owner_fd = fds[0];
}

static void set_up(struct setting *setting, const char *extra) {
    setting->peer = controller_peer_start(0);
    (void)snprintf(setting->url, sizeof(setting->url), "http://127.0.0.1:%u",
                   controller_peer_port(setting->peer));
    start_agent(setting, extra);
}

/* Closing the owner's end must end the agent in order, whatever happened before. */
static void tear_down(struct setting *setting) {
    (void)close(setting->owner_fd);
    assert_int_equal(child_wait(&setting->agent), 0);
    child_free(&setting->agent);
    controller_peer_stop(setting->peer);
}

static struct dsched_plan make_plan(uint32_t n_elements) {
    struct dsched_plan plan;
    assert_int_equal(dsched_plan_init(&plan, 1, 1), DSCHED_OK);
    plan.rule = DSCHED_AVERAGED;
    plan.n_links = 1;
    plan.buckets[0].end = n_elements;
    plan.merge[0] = 2;
    return plan;
}

static void everything_arrives_once(void **unused) {
    (void)unused;
    struct setting setting;
    struct ipc_rank ranks[2];
    int ops_sound = 0;
    set_up(&setting, "--exit-when-done");
    for (int32_t i = 0; i < 2; i++) {
        ipc_rank_join(&ranks[i], setting.socket, i, 2, "job", "job/1");
    }
    controller_peer_await_local_ranks(setting.peer, 2);
    for (unsigned round = 0; round < 10; round++) {
        for (size_t i = 0; i < 2; i++) {
            ipc_rank_iterations(&ranks[i], (uint64_t)round * 100, 100, 0);
        }
    }
    for (size_t i = 0; i < 2; i++) {
        ipc_rank_event(&ranks[i], IPC_EVENT_FINISHED, 0);
        ipc_rank_leave(&ranks[i]);
    }
    assert_int_equal(child_wait(&setting.agent), 0);
    controller_peer_await_iterations(setting.peer, 0, 1000);
    controller_peer_await_iterations(setting.peer, 1, 1000);
    controller_peer_await_event(setting.peer, "finished", 0);
    assert_int_equal(controller_peer_most_counted(setting.peer), 1);
    assert_int_equal(controller_peer_gaps(setting.peer), 0);
    assert_int_equal(controller_peer_ops(setting.peer, &ops_sound), 2000);
    assert_true(ops_sound);
    (void)close(setting.owner_fd);
    child_free(&setting.agent);
    controller_peer_stop(setting.peer);
}

/* What a plan of these tests may reach; the other limit is not set. */
#define MAX_LOSS 2.875

static void expect_plan(struct ipc_rank *rank, uint64_t seq, const struct dsched_plan *plan) {
    uint16_t type;
    const void *payload;
    size_t n_bytes;
    struct ipc_plan head;
    struct dsched_plan decoded;
    ipc_rank_receive(rank, &type, &payload, &n_bytes);
    assert_int_equal(type, IPC_PLAN);
    memcpy(&head, payload, sizeof(head));
    assert_int_equal(head.seq, seq);
    assert_int_equal(head.hash, dsched_plan_hash(plan));
    assert_true(head.max_loss == MAX_LOSS && isnan(head.max_grad_sq));
    assert_int_equal(dsched_plan_decode((const uint8_t *)payload + sizeof(head),
                                        n_bytes - sizeof(head), &decoded, NULL),
                     DSCHED_OK);
    assert_int_equal(dsched_plan_hash(&decoded), head.hash);
    dsched_plan_done(&decoded);
}

static void plans_reach_every_rank_and_only_valid_ones(void **unused) {
    (void)unused;
    struct setting setting;
    struct ipc_rank ranks[3];
    struct dsched_plan good = make_plan(6000);
    struct dsched_plan bad = make_plan(5000); /* leaves a part of the gradient space out */
    set_up(&setting, NULL);
    for (int32_t i = 0; i < 2; i++) {
        ipc_rank_join(&ranks[i], setting.socket, i, 3, "job", "job/1");
    }
    controller_peer_await_local_ranks(setting.peer, 2);
    controller_peer_push(setting.peer, 1, &good, MAX_LOSS);
    expect_plan(&ranks[0], 1, &good);
    expect_plan(&ranks[1], 1, &good);
    ipc_rank_join(&ranks[2], setting.socket, 2, 3, "job", "job/1");
    expect_plan(&ranks[2], 1, &good);
    controller_peer_push(setting.peer, 2, &bad, MAX_LOSS);
    controller_peer_await_event(setting.peer, "refused", 2);
    controller_peer_push(setting.peer, 3, &good, MAX_LOSS);
    for (size_t i = 0; i < 3; i++) {
        expect_plan(&ranks[i], 3, &good);
        ipc_rank_event(&ranks[i], IPC_EVENT_SWITCHED, 3);
    }
    controller_peer_await_event(setting.peer, "switched", 3);
    ipc_rank_event(&ranks[0], IPC_EVENT_FUSED, 3);
    controller_peer_await_event(setting.peer, "fused", 3);
    for (size_t i = 0; i < 3; i++) {
        ipc_rank_leave(&ranks[i]);
    }
    /* They left without a goodbye, which somebody should know. */
    controller_peer_await_event(setting.peer, "failed", 0);
    tear_down(&setting);
    dsched_plan_done(&good);
    dsched_plan_done(&bad);
}

static void a_controller_that_comes_late_gets_everything(void **unused) {
    (void)unused;
    struct setting setting;
    struct ipc_rank rank;
    struct controller_peer *reserved = controller_peer_start(0);
    uint16_t port = controller_peer_port(reserved);
    controller_peer_stop(reserved);
    (void)snprintf(setting.url, sizeof(setting.url), "http://127.0.0.1:%u", port);
    start_agent(&setting, NULL);
    ipc_rank_join(&rank, setting.socket, 0, 1, "job", "job/1");
    ipc_rank_iterations(&rank, 0, 600, 0);
    child_await_output(&setting.agent, "waiting for");
    setting.peer = controller_peer_start(port);
    ipc_rank_iterations(&rank, 600, 100, 0);
    controller_peer_await_iterations(setting.peer, 0, 700);
    assert_int_equal(controller_peer_most_counted(setting.peer), 1);
    assert_int_equal(controller_peer_gaps(setting.peer), 0);
    ipc_rank_leave(&rank);
    tear_down(&setting);
}

static void controllers_may_have_ipv6_addresses(void **unused) {
    (void)unused;
    struct setting setting;
    struct ipc_rank rank;
    struct sockaddr_in6 loopback = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&loopback, sizeof(loopback)) != 0) {
        testing_skip("this machine has no IPv6 loopback");
    }
    (void)close(fd);
    setting.peer = controller_peer_start_at("::1", 0);
    (void)snprintf(setting.url, sizeof(setting.url), "http://[::1]:%u",
                   controller_peer_port(setting.peer));
    start_agent(&setting, NULL);
    ipc_rank_join(&rank, setting.socket, 0, 1, "job", "job/1");
    ipc_rank_iterations(&rank, 0, 10, 0);
    controller_peer_await_iterations(setting.peer, 0, 10);
    ipc_rank_leave(&rank);
    tear_down(&setting);
}

static void lost_answers_change_nothing(void **unused) {
    (void)unused;
    struct setting setting;
    struct ipc_rank rank;
    set_up(&setting, NULL);
    controller_peer_lose_answers(setting.peer, 2);
    ipc_rank_join(&rank, setting.socket, 0, 1, "job", "job/1");
    ipc_rank_iterations(&rank, 0, 1500, 0);
    controller_peer_await_iterations(setting.peer, 0, 1500);
    assert_int_equal(controller_peer_most_counted(setting.peer), 1);
    assert_int_equal(controller_peer_gaps(setting.peer), 0);
    assert_true(controller_peer_repeats(setting.peer) > 0);
    /* Every 503 says Retry-After: 1. */
    assert_true(controller_peer_least_pause_ns(setting.peer) >= 1000000000);
    ipc_rank_leave(&rank);
    tear_down(&setting);
}

static void a_forgotten_incarnation_registers_again(void **unused) {
    (void)unused;
    struct setting setting;
    struct ipc_rank rank;
    set_up(&setting, NULL);
    ipc_rank_join(&rank, setting.socket, 0, 1, "job", "job/1");
    ipc_rank_iterations(&rank, 0, 10, 0);
    controller_peer_await_iterations(setting.peer, 0, 10);
    controller_peer_forget(setting.peer);
    ipc_rank_iterations(&rank, 10, 10, 0);
    controller_peer_await_registrations(setting.peer, 2);
    controller_peer_await_iterations(setting.peer, 0, 20);
    assert_int_equal(controller_peer_most_counted(setting.peer), 1);
    ipc_rank_leave(&rank);
    tear_down(&setting);
}

static void a_malformed_rank_is_closed_and_others_live(void **unused) {
    (void)unused;
    struct setting setting;
    struct ipc_rank good;
    struct ipc_rank bad;
    struct ipc_rank other;
    static const uint8_t garbage[64] = {1, 2, 3};
    set_up(&setting, NULL);
    ipc_rank_join(&good, setting.socket, 0, 2, "job", "job/1");
    ipc_rank_intrude(&bad, setting.socket, 1, 2, "job", "job/1");
    assert_int_equal(send(bad.fd, garbage, sizeof(garbage), MSG_NOSIGNAL), sizeof(garbage));
    assert_true(ipc_rank_is_dropped(&bad));
    /* A rank of another start of the job is not mixed in. */
    ipc_rank_intrude(&other, setting.socket, 1, 2, "job", "job/2");
    assert_true(ipc_rank_is_dropped(&other));
    ipc_rank_iterations(&good, 0, 10, 0);
    controller_peer_await_iterations(setting.peer, 0, 10);
    ipc_rank_leave(&good);
    ipc_rank_leave(&bad);
    ipc_rank_leave(&other);
    tear_down(&setting);
}

static void a_second_start_follows_the_first(void **unused) {
    (void)unused;
    struct setting setting;
    struct ipc_rank rank;
    struct dsched_plan plan = make_plan(6000);
    set_up(&setting, NULL);
    ipc_rank_join(&rank, setting.socket, 0, 1, "job", "job/1");
    ipc_rank_iterations(&rank, 0, 10, 0);
    controller_peer_await_iterations(setting.peer, 0, 10);
    ipc_rank_event(&rank, IPC_EVENT_FINISHED, 0);
    ipc_rank_leave(&rank);
    controller_peer_await_event(setting.peer, "finished", 0);
    ipc_rank_join(&rank, setting.socket, 0, 1, "job", "job/2");
    controller_peer_await_registrations(setting.peer, 2);
    controller_peer_push(setting.peer, 1, &plan, MAX_LOSS);
    expect_plan(&rank, 1, &plan);
    ipc_rank_leave(&rank);
    tear_down(&setting);
    dsched_plan_done(&plan);
}

/* Everything that the agent has to say about a rank that it does not take. */
static void ranks_that_do_not_belong_here_are_refused_with_a_sentence(void **unused) {
    (void)unused;
    static const struct {
        int32_t rank;
        int32_t n_ranks;
        const char *job;
        const char *key;
        const char *sentence;
    } strangers[] = {
        {0, 2, "job", "job/1", "is connected already"},
        {1, 3, "job", "job/1", "has another world"},
        {2, 2, "job", "job/1", "not within the world"},
        {1, 2, "other", "other/1", "each job has an agent of its own"},
        {1, 2, "job", "job/2", "belongs to incarnation 'job/2'"},
    };
    struct setting setting;
    struct ipc_rank good;
    set_up(&setting, NULL);
    ipc_rank_join(&good, setting.socket, 0, 2, "job", "job/1");
    controller_peer_await_local_ranks(setting.peer, 1);
    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
        struct ipc_rank rank;
        ipc_rank_intrude(&rank, setting.socket, strangers[i].rank, strangers[i].n_ranks,
                         strangers[i].job, strangers[i].key);
        child_await_output(&setting.agent, strangers[i].sentence);
        assert_true(ipc_rank_is_dropped(&rank));
        ipc_rank_leave(&rank);
    }
    ipc_rank_iterations(&good, 0, 10, 0);
    controller_peer_await_iterations(setting.peer, 0, 10);
    ipc_rank_leave(&good);
    tear_down(&setting);
}

/* A requeue with another world: the ranks of the new start come while the agent has yet to read
 * what the old ones wrote before they died. */
static void a_new_world_follows_and_the_old_one_keeps_its_records(void **unused) {
    (void)unused;
    struct setting setting;
    struct ipc_rank old[2];
    struct ipc_rank fresh[3];
    set_up(&setting, NULL);
    for (int32_t i = 0; i < 2; i++) {
        ipc_rank_join(&old[i], setting.socket, i, 2, "job", "job/1");
    }
    controller_peer_await_local_ranks(setting.peer, 2);
    assert_int_equal(kill(setting.agent.pid, SIGSTOP), 0);
    for (size_t i = 0; i < 2; i++) {
        ipc_rank_iterations(&old[i], 0, 100, 0);
        ipc_rank_leave(&old[i]);
    }
    ipc_rank_join(&fresh[0], setting.socket, 0, 3, "job", "job/2");
    assert_int_equal(kill(setting.agent.pid, SIGCONT), 0);
    for (int32_t i = 1; i < 3; i++) {
        ipc_rank_join(&fresh[i], setting.socket, i, 3, "job", "job/2");
    }
    controller_peer_await_local_ranks(setting.peer, 3);
    for (unsigned i = 0; i < 2; i++) {
        controller_peer_await_iterations(setting.peer, i, 100);
    }
    ipc_rank_iterations(&fresh[2], 0, 100, 0);
    controller_peer_await_iterations(setting.peer, 2, 100);
    assert_int_equal(controller_peer_most_counted(setting.peer), 1);
    for (size_t i = 0; i < 3; i++) {
        ipc_rank_leave(&fresh[i]);
    }
    tear_down(&setting);
}

static void sigterm_flushes_first(void **unused) {
    (void)unused;
    struct setting setting;
    struct ipc_rank rank;
    set_up(&setting, NULL);
    ipc_rank_join(&rank, setting.socket, 0, 1, "job", "job/1");
    controller_peer_await_registrations(setting.peer, 1);
    ipc_rank_iterations(&rank, 0, 50, 0);
    assert_int_equal(kill(setting.agent.pid, SIGTERM), 0);
    assert_int_equal(child_wait(&setting.agent), 0);
    controller_peer_await_iterations(setting.peer, 0, 50);
    ipc_rank_leave(&rank);
    (void)close(setting.owner_fd);
    child_free(&setting.agent);
    controller_peer_stop(setting.peer);
}

/* A launcher may signal it together with ranks that then finish in order. */
static void signals_may_wait_for_the_ranks(void **unused) {
    (void)unused;
    struct setting setting;
    struct ipc_rank rank;
    set_up(&setting, "--after-ranks");
    ipc_rank_join(&rank, setting.socket, 0, 1, "job", "job/1");
    controller_peer_await_registrations(setting.peer, 1);
    assert_int_equal(kill(setting.agent.pid, SIGTERM), 0);
    child_await_output(&setting.agent, "ending once the ranks have gone");
    ipc_rank_iterations(&rank, 0, 50, 0);
    controller_peer_await_iterations(setting.peer, 0, 50); /* it goes on working */
    ipc_rank_iterations(&rank, 50, 50, 0);
    ipc_rank_leave(&rank);
    assert_int_equal(child_wait(&setting.agent), 0);
    controller_peer_await_iterations(setting.peer, 0, 100);
    (void)close(setting.owner_fd);
    child_free(&setting.agent);
    /* Without ranks there is nothing to wait for. */
    start_agent(&setting, "--after-ranks");
    assert_int_equal(kill(setting.agent.pid, SIGINT), 0);
    tear_down(&setting);
}

static void wrong_options_are_one_sentence(void **unused) {
    (void)unused;
    const char *const bad[][6] = {
        {DEFT_AGENT, "--socket", "@x", NULL},
        {DEFT_AGENT, "--socket", "@x", "--controller", "ftp://x", NULL},
        {DEFT_AGENT, "--mode", "fast", NULL},
        {DEFT_AGENT, "--max-merge", "65", NULL},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct child child;
        child_start(&child, bad[i], NULL, -1, 1);
        assert_int_equal(child_wait(&child), 2);
        assert_non_null(strstr(child.output, "deft-agent: "));
        child_free(&child);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(everything_arrives_once),
    cmocka_unit_test(plans_reach_every_rank_and_only_valid_ones),
    cmocka_unit_test(a_controller_that_comes_late_gets_everything),
    cmocka_unit_test(controllers_may_have_ipv6_addresses),
    cmocka_unit_test(lost_answers_change_nothing),
    cmocka_unit_test(a_forgotten_incarnation_registers_again),
    cmocka_unit_test(a_malformed_rank_is_closed_and_others_live),
    cmocka_unit_test(a_second_start_follows_the_first),
    cmocka_unit_test(ranks_that_do_not_belong_here_are_refused_with_a_sentence),
    cmocka_unit_test(a_new_world_follows_and_the_old_one_keeps_its_records),
    cmocka_unit_test(sigterm_flushes_first),
    cmocka_unit_test(signals_may_wait_for_the_ranks),
    cmocka_unit_test(wrong_options_are_one_sentence),
};
TESTING_MAIN(cases)
