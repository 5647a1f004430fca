#include "load_agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"

/* As in agent/daemon. */
#define AGENT_TIMEOUT_NS   INT64_C(10000000000)
#define AGENT_SILENCE_NS   INT64_C(35000000000)
#define AGENT_RETRY_MOST_S 60
/* Of 127.0.0.0/16: each has 28,000 ports. */
#define AGENT_SOURCES 16u

static uint64_t agent_random(struct load_fleet *fleet) {
    fleet->random ^= fleet->random << 13;
    fleet->random ^= fleet->random >> 7;
    fleet->random ^= fleet->random << 17;
    return fleet->random;
}

void load_agent_init(struct load_agent *agent, struct load_fleet *fleet, uint32_t index,
                     struct load_job *job, uint32_t rank) {
    const struct load_options *options = &fleet->options;
    *agent = (struct load_agent){.fleet = fleet,
                                 .job = job,
                                 .rank = rank,
                                 .tag = 2 * (uint64_t)index,
                                 .source = 2 + index % AGENT_SOURCES,
                                 .keeps = index < options->n_kept,
                                 .up = {.fd = -1},
                                 .down = {.fd = -1, .is_stream = 1}};
    agent->up_timer.tag = agent->tag;
    agent->down_timer.tag = agent->tag + 1;
    daemon_pace_init(&agent->up_pace, agent_random(fleet));
    daemon_pace_init(&agent->down_pace, agent_random(fleet));
    load_wheel_set(&fleet->wheel, &agent->up_timer,
                   fleet->now_ns + options->ramp_ns / options->n_agents * index);
}

void load_agent_done(struct load_agent *agent) {
    load_http_close(&agent->up);
    load_http_close(&agent->down);
    sse_done(&agent->sse);
}

/* --- reports ------------------------------------------------------------------------------------
 */

static int64_t agent_due_ns(const struct load_agent *agent) {
    return agent->begin_ns + (int64_t)agent->n_acked * agent->fleet->options.interval_ns;
}

/* 1 when its next report is to be made at all. */
static int agent_has_more(const struct load_agent *agent) {
    const struct load_fleet *fleet = agent->fleet;
    if (fleet->options.n_reports > 0 && agent->n_acked >= fleet->options.n_reports) {
        return 0;
    }
    return fleet->drain_ns == 0 ||
           (fleet->options.interval_ns > 0 && agent_due_ns(agent) <= fleet->drain_ns);
}

int load_agent_is_idle(const struct load_agent *agent) {
    return agent->state == LOAD_AGENT_IDLE && agent->is_registered && !agent_has_more(agent);
}

static void agent_set_up(struct load_agent *agent, int64_t due_ns) {
    load_wheel_set(&agent->fleet->wheel, &agent->up_timer, due_ns);
}

static void agent_back_off(struct load_agent *agent, int64_t retry_after_s) {
    int64_t most_s = retry_after_s < AGENT_RETRY_MOST_S ? retry_after_s : AGENT_RETRY_MOST_S;
    int64_t pause_ns = daemon_pace_next_ns(&agent->up_pace) + most_s * INT64_C(1000000000);
    agent->state = LOAD_AGENT_IDLE;
    agent_set_up(agent, agent->fleet->now_ns + pause_ns);
}

static void agent_break(struct load_agent *agent) {
    load_http_close(&agent->up);
    agent->fleet->figures.n_broken++;
    agent_back_off(agent, 0);
}

/* Takes the body over. */
static void agent_post(struct load_agent *agent, const char *path, char *body,
                       enum load_agent_state state) {
    struct load_fleet *fleet = agent->fleet;
    size_t n = 0;
    char *bytes = body != NULL ? load_http_request("POST", path, body, "", &n) : NULL;
    free(body);
    if (bytes == NULL ||
        (agent->up.fd < 0 && !load_http_connect(&agent->up, fleet->epoll_fd, agent->tag,
                                                agent->source, fleet->options.port))) {
        free(bytes);
        agent_break(agent);
        return;
    }
    agent->state = state;
    agent->sent_ns = fleet->now_ns;
    if (!load_http_send(&agent->up, fleet->epoll_fd, agent->tag, bytes, n)) {
        agent_break(agent);
        return;
    }
    agent_set_up(agent, fleet->now_ns + AGENT_TIMEOUT_NS);
}

/* Does what is to be done now, or waits for what comes next. */
static void agent_go_on(struct load_agent *agent) {
    struct load_fleet *fleet = agent->fleet;
    char path[2 * WIRE_ID_BYTES];
    load_wheel_cancel(&agent->up_timer);
    if (!agent->is_registered) {
        (void)snprintf(path, sizeof(path), "/api/v1/jobs/%s/incarnations", agent->job->id);
        agent_post(agent, path, load_job_registration(agent->job, agent->rank, agent->n_starts),
                   LOAD_AGENT_REGISTERING);
    } else if (!agent_has_more(agent)) {
        return;
    } else if (agent_due_ns(agent) > fleet->now_ns) {
        agent_set_up(agent, agent_due_ns(agent));
    } else {
        (void)snprintf(path, sizeof(path), "/api/v1/incarnations/%s/reports",
                       agent->job->incarnation);
        agent_post(agent, path,
                   load_job_report(agent->job, agent->rank, agent->n_starts,
                                   agent->n_acked - agent->n_before + 1, agent->n_acked),
                   LOAD_AGENT_REPORTING);
    }
}

void load_agent_up_due(struct load_agent *agent) {
    if (agent->state != LOAD_AGENT_IDLE) {
        agent_break(agent); /* no answer in all that time */
    } else {
        agent_go_on(agent);
    }
}

/* --- answers ------------------------------------------------------------------------------------
 */

/* Another process under another name, which goes on where the job is. */
static void agent_restart(struct load_agent *agent) {
    agent->n_starts++;
    agent->n_before = agent->n_acked;
    agent->is_registered = 0;
    agent->fleet->figures.n_starts++;
    load_http_close(&agent->up);
    load_http_close(&agent->down);
    agent->is_open = 0;
    load_wheel_cancel(&agent->down_timer);
}

static void agent_acknowledged(struct load_agent *agent) {
    struct load_fleet *fleet = agent->fleet;
    const struct load_options *options = &fleet->options;
    int64_t due_ns = options->interval_ns > 0 ? agent_due_ns(agent) : agent->sent_ns;
    int64_t gap_ns = agent->acked_ns > 0 ? fleet->now_ns - agent->acked_ns : 0;
    load_times_add(&fleet->acks, fleet->now_ns - due_ns);
    if (gap_ns > fleet->figures.longest_gap_ns) {
        fleet->figures.longest_gap_ns = gap_ns;
    }
    agent->acked_ns = fleet->now_ns;
    agent->n_acked++;
    fleet->figures.n_acknowledged++;
    daemon_pace_reset(&agent->up_pace);
    if (options->restart_every > 0 && agent_random(fleet) % options->restart_every == 0) {
        agent_restart(agent);
    }
    agent_go_on(agent);
}

static void agent_registered(struct load_agent *agent, const struct wire_registered *answer) {
    struct load_fleet *fleet = agent->fleet;
    fleet->figures.n_registered++;
    memcpy(agent->job->incarnation, answer->incarnation, sizeof(answer->incarnation));
    agent->job->is_known = 1;
    agent->is_registered = 1;
    daemon_pace_reset(&agent->up_pace);
    while (agent->n_before + answer->committed_seq > agent->n_acked) {
        agent->n_acked++; /* its acknowledgement was lost */
        fleet->figures.n_late++;
    }
    if (agent->begin_ns == 0) {
        int64_t interval_ns = fleet->options.interval_ns;
        agent->begin_ns =
            fleet->now_ns +
            (interval_ns > 0 ? (int64_t)(agent_random(fleet) % (uint64_t)interval_ns) : 0);
    }
    if (agent->down.fd < 0) {
        load_wheel_set(&fleet->wheel, &agent->down_timer, fleet->now_ns);
    }
    agent_go_on(agent);
}

/* As the agent judges answers that are none it hoped for. */
static void agent_refused(struct load_agent *agent, const struct load_http_reply *reply) {
    struct load_figures *figures = &agent->fleet->figures;
    int status = reply->status;
    int is_later = status >= 500 || status == 401 || status == 403 || status == 408 ||
                   status == 421 || status == 429;
    if (status == 429 || status == 503) {
        figures->n_busy++;
    } else if (agent->state == LOAD_AGENT_REPORTING && (status == 404 || status == 409)) {
        agent->is_registered = 0;
    } else if (!is_later || status == 500) {
        figures->n_refused++;
        (void)fprintf(stderr, "load: an answer with HTTP %d: %.*s\n", status,
                      (int)(reply->n_body < 300 ? reply->n_body : 300), reply->body);
    }
    agent_back_off(agent, reply->retry_after_s);
}

static void agent_answered(struct load_agent *agent, const struct load_http_reply *reply) {
    struct wire_registered registered = {0};
    uint64_t committed = 0;
    enum load_agent_state state = agent->state;
    int is_good = 0;
    if (reply->status == 200 || reply->status == 201) {
        is_good =
            state == LOAD_AGENT_REGISTERING
                ? wire_registered_decode(reply->body, reply->n_body, &registered, NULL) == DEFT_OK
                : wire_committed_decode(reply->body, reply->n_body, &committed, NULL) == DEFT_OK &&
                      committed == agent->n_acked - agent->n_before + 1;
    }
    if (!is_good) {
        agent_refused(agent, reply);
    }
    if (reply->closes || !agent->keeps) {
        load_http_close(&agent->up);
    }
    if (is_good) {
        agent->state = LOAD_AGENT_IDLE;
        if (state == LOAD_AGENT_REGISTERING) {
            agent_registered(agent, &registered);
        } else {
            agent_acknowledged(agent);
        }
    }
}

void load_agent_up_event(struct load_agent *agent) {
    struct load_http_reply reply;
    switch (load_http_serve(&agent->up, agent->fleet->epoll_fd, agent->tag, &reply)) {
    case LOAD_HTTP_ANSWERED:
        if (agent->state != LOAD_AGENT_IDLE) {
            agent_answered(agent, &reply);
        }
        break;
    case LOAD_HTTP_BROKEN:
        if (agent->state != LOAD_AGENT_IDLE) {
            agent_break(agent);
        }
        break;
    default:
        break;
    }
}

/* --- streams ------------------------------------------------------------------------------------
 */

/* The ranks agree on a boundary that none of them has reached. */
static void agent_switch(struct load_agent *agent, const char *data, uint64_t seq) {
    struct load_fleet *fleet = agent->fleet;
    struct load_job *job = agent->job;
    struct wire_plan_event event = {0};
    uint64_t most = 0;
    if (wire_plan_event_decode(data, strlen(data), &event, NULL) != DEFT_OK || event.seq != seq) {
        fleet->figures.n_refused++;
        (void)fprintf(stderr, "load: plan %llu of job %s is none\n", (unsigned long long)seq,
                      job->id);
        wire_plan_event_done(&event);
        return;
    }
    for (uint32_t i = 0; i < job->n_agents; i++) {
        uint64_t n_acked = fleet->agents[job->first_agent + i].n_acked;
        most = n_acked > most ? n_acked : most;
    }
    job->old_seq = job->plan_seq;
    job->old_step_ns = job->plan_step_ns;
    job->plan_seq = seq;
    job->plan_step_ns = event.plan.rule == DSCHED_EXACT ? 0 : event.plan.forecast.step_ns;
    job->plan_from = (most + 2) * job->n_iterations;
    wire_plan_event_done(&event);
}

static void agent_plan(struct load_agent *agent, const char *id, const char *data) {
    struct load_fleet *fleet = agent->fleet;
    struct load_call *call = &fleet->call;
    uint64_t seq = 0;
    if (parse_u64("the id of a plan", id, 1, INT64_MAX, &seq, NULL) != DEFT_OK) {
        fleet->figures.n_refused++;
        return;
    }
    if (seq <= agent->plan_seen) {
        return;
    }
    agent->plan_seen = seq;
    if (call->wants_plan && seq > call->plan_base && agent->called == call->number &&
        agent->plan_call != call->number) {
        agent->plan_call = call->number;
        call->n_plans++;
        load_times_add(&fleet->plans, fleet->now_ns - call->sent_ns);
    }
    if (seq > agent->job->plan_seq) {
        agent_switch(agent, data, seq);
    }
}

static void agent_mode(struct load_agent *agent, const char *data) {
    struct load_fleet *fleet = agent->fleet;
    struct load_call *call = &fleet->call;
    struct wire_mode mode;
    if (wire_mode_decode(data, strlen(data), &mode, NULL) != DEFT_OK) {
        fleet->figures.n_refused++;
    } else if (call->number > 0 && agent->called == call->number &&
               agent->mode_call != call->number && strcmp(mode.mode, call->mode) == 0) {
        agent->mode_call = call->number;
        call->n_modes++;
        load_times_add(&fleet->modes, fleet->now_ns - call->sent_ns);
    }
}

static int agent_event(void *context, const char *event, const char *id, const char *data) {
    struct load_agent *agent = context;
    daemon_pace_reset(&agent->down_pace);
    if (strcmp(event, "plan") == 0) {
        agent_plan(agent, id, data);
    } else if (strcmp(event, "mode") == 0) {
        agent_mode(agent, data);
    }
    return 0;
}

static int agent_take(void *context, const char *bytes, size_t n) {
    struct load_agent *agent = context;
    agent->heard_ns = agent->fleet->now_ns;
    if (n == 0) {
        agent->is_open = 1;
        agent->fleet->figures.n_opened++;
        return 0;
    }
    return sse_feed(&agent->sse, bytes, n, agent_event, agent, NULL) != DEFT_OK;
}

/* The stream has ended or never stood. */
static void agent_stream_over(struct load_agent *agent, int is_busy) {
    struct load_fleet *fleet = agent->fleet;
    int64_t pause_ns = daemon_pace_next_ns(&agent->down_pace);
    load_http_close(&agent->down);
    sse_done(&agent->sse);
    agent->sse = (struct sse_parser){0};
    agent->is_open = 0;
    load_wheel_set(&fleet->wheel, &agent->down_timer,
                   fleet->now_ns + pause_ns + (is_busy ? DAEMON_PACE_MOST_NS : 0));
}

static void agent_follow(struct load_agent *agent) {
    struct load_fleet *fleet = agent->fleet;
    char path[2 * WIRE_ID_BYTES];
    char last[64] = "";
    size_t n = 0;
    (void)snprintf(path, sizeof(path), "/api/v1/incarnations/%s/events", agent->job->incarnation);
    if (agent->plan_seen > 0) {
        (void)snprintf(last, sizeof(last), "Last-Event-ID: %llu\r\n",
                       (unsigned long long)agent->plan_seen);
    }
    char *bytes = load_http_request("GET", path, NULL, last, &n);
    agent->down.take = agent_take;
    agent->down.context = agent;
    agent->heard_ns = fleet->now_ns;
    if (bytes == NULL || !load_http_connect(&agent->down, fleet->epoll_fd, agent->tag + 1,
                                            agent->source, fleet->options.port)) {
        free(bytes);
        fleet->figures.n_broken++;
        agent_stream_over(agent, 0);
    } else if (!load_http_send(&agent->down, fleet->epoll_fd, agent->tag + 1, bytes, n)) {
        fleet->figures.n_broken++;
        agent_stream_over(agent, 0);
    } else {
        load_wheel_set(&fleet->wheel, &agent->down_timer, fleet->now_ns + AGENT_SILENCE_NS);
    }
}

void load_agent_down_due(struct load_agent *agent) {
    struct load_fleet *fleet = agent->fleet;
    if (agent->down.fd < 0) {
        if (agent->is_registered) { /* else the registration will come back to it */
            agent_follow(agent);
        }
    } else if (fleet->now_ns - agent->heard_ns >= AGENT_SILENCE_NS) {
        fleet->figures.n_broken++;
        agent_stream_over(agent, 0);
    } else {
        load_wheel_set(&fleet->wheel, &agent->down_timer, agent->heard_ns + AGENT_SILENCE_NS);
    }
}

void load_agent_down_event(struct load_agent *agent) {
    struct load_fleet *fleet = agent->fleet;
    struct load_http_reply reply;
    switch (load_http_serve(&agent->down, fleet->epoll_fd, agent->tag + 1, &reply)) {
    case LOAD_HTTP_ANSWERED:
        if (reply.status == 429 || reply.status == 503) {
            fleet->figures.n_busy++;
        } else if (reply.status == 404) {
            agent->is_registered = 0;
            if (agent->state == LOAD_AGENT_IDLE) {
                agent_go_on(agent);
            }
        } else {
            fleet->figures.n_refused++;
        }
        agent_stream_over(agent, reply.status == 429 || reply.status == 503);
        break;
    case LOAD_HTTP_BROKEN:
        agent_stream_over(agent, 0);
        break;
    default:
        break;
    }
}
