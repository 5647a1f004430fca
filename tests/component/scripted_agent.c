#include "scripted_agent.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "talk.h"
#include "testing.h"

#define SCRIPTED_TENSORS 8u
/* Per report: fewer than any window of the tuner. */
#define SCRIPTED_BATCH 5u

char *scripted_agent_registration(void) {
    struct dsched_tensor tensors[SCRIPTED_TENSORS];
    struct dsched_sample probes[3] = {{4096, 200000}, {1u << 20, 9000000}, {1u << 25, 280000000}};
    struct wire_link link = {.name = "mem:a", .n_probes = 3, .probes = probes};
    uint32_t ranks[SCRIPTED_RANKS] = {0, 1};
    const struct wire_registration registration = {.key = "start-1",
                                                   .user = "user-1",
                                                   .agent = "host-1",
                                                   .n_ranks = SCRIPTED_RANKS,
                                                   .table_hash = 7,
                                                   .capabilities =
                                                       WIRE_CAN_PREVIEW | WIRE_CAN_AVERAGE,
                                                   .optimizer = "sgd",
                                                   .momentum = 0.9,
                                                   .learning_rate = 0.05,
                                                   .batch_per_rank = 512,
                                                   .n_local_ranks = SCRIPTED_RANKS,
                                                   .local_ranks = ranks,
                                                   .n_tensors = SCRIPTED_TENSORS,
                                                   .tensors = tensors,
                                                   .n_links = 1,
                                                   .links = &link};
    char *text = NULL;
    memset(tensors, 0, sizeof(tensors));
    for (uint32_t i = 0; i < SCRIPTED_TENSORS; i++) {
        tensors[i].name[0] = (char)('a' + i);
        tensors[i].elements = 1u << 20;
    }
    assert_int_equal(wire_registration_encode(&registration, &text, NULL), DEFT_OK);
    return text;
}

void scripted_agent_start(struct scripted_agent *agent, const struct controller *controller,
                          const char *job, double (*loss)(struct scripted_agent *agent)) {
    struct wire_registered registered;
    char path[256];
    char *text = scripted_agent_registration();
    memset(agent, 0, sizeof(*agent));
    agent->controller = controller;
    agent->job = job;
    agent->loss = loss;
    agent->is_exact = 1;
    agent->step_ns = SCRIPTED_COMPUTE_NS + SCRIPTED_EXPOSED_NS;
    agent->random = testing_seed();
    (void)snprintf(path, sizeof(path), "/api/v1/jobs/%s/incarnations", job);
    char *answer = talk_expect(controller->port, "POST", path, text, 201);
    assert_int_equal(wire_registered_decode(answer, strlen(answer), &registered, NULL), DEFT_OK);
    (void)snprintf(agent->path, sizeof(agent->path), "/api/v1/incarnations/%.64s",
                   registered.incarnation);
    agent->seq = registered.committed_seq;
    free(answer);
    free(text);
}

/* --- reports ---------------------------------------------------------------------------------- */

static void scripted_send(struct scripted_agent *agent, struct wire_report *report) {
    char path[160];
    char *text = NULL;
    memcpy(report->agent, "host-1", 7);
    report->seq = ++agent->seq;
    assert_int_equal(wire_report_encode(report, &text, NULL), DEFT_OK);
    (void)snprintf(path, sizeof(path), "%s/reports", agent->path);
    free(talk_expect(agent->controller->port, "POST", path, text, 200));
    free(text);
}

static void scripted_report(struct scripted_agent *agent, uint32_t n) {
    struct wire_iteration rows[SCRIPTED_BATCH * SCRIPTED_RANKS];
    struct wire_report report = {.n_iterations = n * SCRIPTED_RANKS, .iterations = rows};
    for (uint32_t i = 0; i < n; i++) {
        double loss = agent->loss(agent);
        for (uint32_t r = 0; r < SCRIPTED_RANKS; r++) {
            rows[i * SCRIPTED_RANKS + r] =
                (struct wire_iteration){.rank = r,
                                        .iteration = agent->iteration,
                                        .plan_seq = agent->plan_seq,
                                        .forward_ns = 60000000,
                                        .backward_ns = 120000000,
                                        .exposed_ns = agent->step_ns - SCRIPTED_COMPUTE_NS,
                                        .optimizer_ns = 20000000,
                                        .step_ns = agent->step_ns + (int64_t)(i % 3) * 10000,
                                        .updates = 1,
                                        .merge = 1,
                                        .loss = loss,
                                        .grad_sq_local = 4,
                                        .grad_sq_mean = agent->is_exact ? 3 : (double)NAN,
                                        .change_sq_local = (double)NAN,
                                        .learning_rate = 0.05};
        }
        agent->iteration++;
    }
    scripted_send(agent, &report);
}

static void scripted_view(struct scripted_agent *agent) {
    char path[160];
    (void)snprintf(path, sizeof(path), "/api/v1/jobs/%s", agent->job);
    char *answer = talk_expect(agent->controller->port, "GET", path, NULL, 200);
    assert_int_equal(wire_job_decode(answer, strlen(answer), &agent->view, NULL), DEFT_OK);
    free(answer);
}

/* --- plans ------------------------------------------------------------------------------------ */

/* The next plan, which is on its way; the ranks run it from here on. */
static void scripted_switch(struct scripted_agent *agent) {
    char path[160];
    char last[24];
    char needle[32];
    (void)snprintf(path, sizeof(path), "%s/events", agent->path);
    (void)snprintf(last, sizeof(last), "%llu", (unsigned long long)agent->seen_seq);
    agent->seen_seq++;
    (void)snprintf(needle, sizeof(needle), "id: %llu\n", (unsigned long long)agent->seen_seq);
    int fd = talk_stream(agent->controller->port, path, last);
    free(talk_read_until(fd, needle));
    (void)close(fd);
    (void)snprintf(path, sizeof(path), "/api/v1/plans/%s.%llu",
                   agent->path + strlen("/api/v1/incarnations/"),
                   (unsigned long long)agent->seen_seq);
    char *plan = talk_expect(agent->controller->port, "GET", path, NULL, 200);
    agent->is_exact = strstr(plan, "\"rule\":\"exact\"") != NULL;
    agent->step_ns = agent->is_exact ? SCRIPTED_COMPUTE_NS + SCRIPTED_EXPOSED_NS
                                     : (int64_t)talk_number(plan, "step_ns");
    agent->plan_seq = agent->seen_seq;
    free(plan);
}

static int scripted_is_phase(const struct scripted_agent *agent, const char *phase) {
    return strcmp(agent->view.phase, phase) == 0;
}

/* Waits for what the tuner is about to say, and does it. */
static void scripted_obey(struct scripted_agent *agent, const char *phase_before) {
    int64_t until_ns = clock_monotonic_ns() + testing_deadline_ns(60);
    scripted_view(agent);
    while (scripted_is_phase(agent, "solving")) {
        assert_true(clock_monotonic_ns() < until_ns);
        scripted_view(agent);
    }
    int is_pushed = scripted_is_phase(agent, "switching") || scripted_is_phase(agent, "resuming") ||
                    scripted_is_phase(agent, "returning") ||
                    (scripted_is_phase(agent, "comparing") && !agent->is_exact) ||
                    (scripted_is_phase(agent, "halted") && !agent->is_exact);
    if (is_pushed && strcmp(agent->view.phase, phase_before) != 0) {
        scripted_switch(agent);
    }
}

void scripted_agent_run(struct scripted_agent *agent, uint32_t n) {
    while (n > 0) {
        uint32_t batch = n < SCRIPTED_BATCH ? n : SCRIPTED_BATCH;
        char phase[16];
        memcpy(phase, agent->view.phase, sizeof(phase));
        scripted_report(agent, batch);
        scripted_obey(agent, phase);
        n -= batch;
    }
}

void scripted_agent_run_to(struct scripted_agent *agent, const char *phase, uint64_t most) {
    uint64_t end = agent->iteration + most;
    while (!scripted_is_phase(agent, phase)) {
        if (agent->iteration >= end) {
            fail_msg("%llu iterations, and the job is still %s: %s", (unsigned long long)most,
                     agent->view.phase, agent->view.decision);
        }
        scripted_agent_run(agent, SCRIPTED_BATCH);
    }
}

void scripted_agent_fuse(struct scripted_agent *agent, const char *why) {
    struct wire_event events[SCRIPTED_RANKS];
    struct wire_report report = {.n_events = SCRIPTED_RANKS, .events = events};
    for (uint32_t r = 0; r < SCRIPTED_RANKS; r++) {
        events[r] = (struct wire_event){
            .rank = r, .kind = "fused", .plan_seq = agent->plan_seq, .iteration = agent->iteration};
        (void)snprintf(events[r].text, sizeof(events[r].text), "%s", why);
    }
    agent->is_exact = 1;
    agent->step_ns = SCRIPTED_COMPUTE_NS + SCRIPTED_EXPOSED_NS;
    scripted_send(agent, &report);
    scripted_view(agent);
}

/* --- what is told ----------------------------------------------------------------------------- */

void scripted_agent_decisions(const struct scripted_agent *agent, struct wire_decisions *out) {
    char path[160];
    (void)snprintf(path, sizeof(path), "%s/decisions", agent->path);
    char *text = talk_expect(agent->controller->port, "GET", path, NULL, 200);
    assert_int_equal(wire_decisions_decode(text, strlen(text), out, NULL), DEFT_OK);
    free(text);
}

uint32_t scripted_agent_count(const struct scripted_agent *agent, const char *kind) {
    struct wire_decisions decisions = {0};
    uint32_t n = 0;
    scripted_agent_decisions(agent, &decisions);
    for (uint32_t i = 0; i < decisions.n_decisions; i++) {
        n += strcmp(decisions.decisions[i].kind, kind) == 0;
    }
    wire_decisions_done(&decisions);
    return n;
}

double scripted_agent_decaying(struct scripted_agent *agent) {
    double noise = (double)testing_random_below(&agent->random, 2000001) / 1e6 - 1;
    return 2.0 / sqrt(1.0 + (double)agent->iteration / 200.0) * (1 + 0.05 * noise);
}
