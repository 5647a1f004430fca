#include "load_fleet.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "load_agent.h"

#define FLEET_OPERATOR UINT64_MAX
#define FLEET_LOG      (UINT64_MAX - 1)
#define FLEET_EVENTS   256
/* Between two looks at whether it is done. */
#define FLEET_LOOK_NS INT64_C(5000000)

/* --- making one ---------------------------------------------------------------------------------
 */

static void fleet_fill_job(struct load_fleet *fleet, uint32_t number, uint32_t first_agent,
                           uint32_t n_agents) {
    /* 1 to 4 iterations between two reports of the pace that is reckoned with, one a second. */
    static const uint32_t iterations[] = {4, 1, 2, 2, 3};
    struct load_job *job = &fleet->jobs[number];
    (void)snprintf(job->id, sizeof(job->id), "load-%u", number);
    (void)snprintf(job->mode, sizeof(job->mode), "%s", number == 0 ? "auto" : "");
    job->number = number;
    job->first_agent = first_agent;
    job->n_agents = n_agents;
    job->n_iterations = iterations[number % (sizeof(iterations) / sizeof(iterations[0]))];
    job->step_ns = INT64_C(1000000000) / job->n_iterations;
}

static void fleet_fill(struct load_fleet *fleet) {
    const struct load_options *options = &fleet->options;
    uint32_t index = 0;
    while (index < options->n_agents) {
        struct load_job *job = &fleet->jobs[fleet->n_jobs];
        uint32_t left = options->n_agents - index;
        uint32_t size = fleet->n_jobs == 0 ? options->n_large : options->n_small;
        fleet_fill_job(fleet, fleet->n_jobs, index, size < left ? size : left);
        for (uint32_t rank = 0; rank < job->n_agents; rank++, index++) {
            load_agent_init(&fleet->agents[index], fleet, index, job, rank);
        }
        fleet->n_jobs++;
    }
}

struct load_fleet *load_fleet_new(const struct load_options *options) {
    struct load_fleet *fleet = calloc(1, sizeof(*fleet));
    if (fleet == NULL || options->n_agents == 0 || options->n_large == 0 || options->n_small == 0) {
        (void)fprintf(stderr, "load: there is no memory for a fleet, or it has no agents\n");
        free(fleet);
        return NULL;
    }
    fleet->options = *options;
    fleet->random = options->seed | 1;
    fleet->operator_http.fd = -1;
    fleet->now_ns = clock_monotonic_ns();
    fleet->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    fleet->jobs = calloc(1 + options->n_agents / options->n_small + 1, sizeof(*fleet->jobs));
    fleet->agents = calloc(options->n_agents, sizeof(*fleet->agents));
    load_wheel_begin(&fleet->wheel, fleet->now_ns);
    if (fleet->jobs == NULL || fleet->agents == NULL || fleet->epoll_fd < 0) {
        (void)fprintf(stderr, "load: a fleet cannot be made: %s\n", strerrordesc_np(errno));
        load_fleet_free(fleet);
        return NULL;
    }
    fleet_fill(fleet);
    load_fleet_move(fleet, options->port, options->log_fd);
    return fleet;
}

void load_fleet_free(struct load_fleet *fleet) {
    if (fleet == NULL) {
        return;
    }
    for (uint32_t i = 0; fleet->agents != NULL && i < fleet->options.n_agents; i++) {
        load_agent_done(&fleet->agents[i]);
    }
    load_http_close(&fleet->operator_http);
    if (fleet->epoll_fd >= 0) {
        (void)close(fleet->epoll_fd);
    }
    free(fleet->jobs);
    free(fleet->agents);
    free(fleet);
}

/* --- the operator -------------------------------------------------------------------------------
 */

static uint32_t fleet_missing(const struct load_call *call) {
    uint32_t n = call->n_streams - call->n_modes;
    return call->wants_plan ? n + call->n_streams - call->n_plans : n;
}

void load_fleet_call(struct load_fleet *fleet, const char *mode) {
    struct load_call *call = &fleet->call;
    const struct load_job *job = &fleet->jobs[0];
    char path[2 * WIRE_ID_BYTES];
    char body[64];
    size_t n = 0;
    uint64_t number = call->number + 1;
    fleet->figures.n_unpushed += fleet_missing(call);
    *call = (struct load_call){.number = number, .is_under_way = 1, .plan_base = job->plan_seq};
    (void)snprintf(call->mode, sizeof(call->mode), "%s", mode);
    call->wants_plan = strcmp(mode, "auto") != 0 && job->plan_step_ns > 0;
    for (uint32_t i = 0; i < job->n_agents; i++) {
        if (fleet->agents[i].is_open) {
            fleet->agents[i].called = number;
            call->n_streams++;
        }
    }
    fleet->figures.n_calls++;
    fleet->figures.n_pushes += (uint64_t)call->wants_plan;
    (void)snprintf(path, sizeof(path), "/api/v1/jobs/%s/mode", job->id);
    (void)snprintf(body, sizeof(body), "{\"mode\":\"%s\"}", mode);
    char *bytes = load_http_request("PUT", path, body, "", &n);
    fleet->now_ns = call->sent_ns = clock_monotonic_ns();
    if (bytes == NULL || (fleet->operator_http.fd < 0 &&
                          !load_http_connect(&fleet->operator_http, fleet->epoll_fd, FLEET_OPERATOR,
                                             1, fleet->options.port))) {
        free(bytes);
        fleet->figures.n_broken++;
        return;
    }
    if (!load_http_send(&fleet->operator_http, fleet->epoll_fd, FLEET_OPERATOR, bytes, n)) {
        fleet->figures.n_broken++;
    }
}

static void fleet_operator_event(struct load_fleet *fleet) {
    struct load_http_reply reply;
    switch (load_http_serve(&fleet->operator_http, fleet->epoll_fd, FLEET_OPERATOR, &reply)) {
    case LOAD_HTTP_ANSWERED:
        fleet->call.is_under_way = 0;
        if (reply.status != 200) {
            fleet->figures.n_refused++;
            (void)fprintf(stderr, "load: the operator was answered with HTTP %d: %.*s\n",
                          reply.status, (int)reply.n_body, reply.body);
        }
        break;
    case LOAD_HTTP_BROKEN:
        fleet->figures.n_broken += (uint64_t)fleet->call.is_under_way;
        break;
    default:
        break;
    }
}

/* --- the loop -----------------------------------------------------------------------------------
 */

static void fleet_read_log(const struct load_fleet *fleet) {
    char bytes[8192];
    ssize_t n = read(fleet->options.log_fd, bytes, sizeof(bytes));
    if (n <= 0) { /* its writer has ended */
        (void)epoll_ctl(fleet->epoll_fd, EPOLL_CTL_DEL, fleet->options.log_fd, NULL);
    }
}

static void fleet_event(struct load_fleet *fleet, uint64_t tag) {
    if (tag == FLEET_OPERATOR) {
        fleet_operator_event(fleet);
    } else if (tag == FLEET_LOG) {
        fleet_read_log(fleet);
    } else {
        struct load_agent *agent = &fleet->agents[tag / 2];
        /* What comes for a descriptor that was closed a moment ago is for nobody. */
        if (tag % 2 == 0 && agent->up.fd >= 0) {
            load_agent_up_event(agent);
        } else if (tag % 2 == 1 && agent->down.fd >= 0) {
            load_agent_down_event(agent);
        }
    }
}

static void fleet_timers(struct load_fleet *fleet) {
    struct load_timer *timer = load_wheel_take(&fleet->wheel, fleet->now_ns);
    while (timer != NULL) {
        struct load_agent *agent = &fleet->agents[timer->tag / 2];
        if (timer->tag % 2 == 0) {
            load_agent_up_due(agent);
        } else {
            load_agent_down_due(agent);
        }
        timer = load_wheel_take(&fleet->wheel, fleet->now_ns);
    }
}

int load_fleet_run(struct load_fleet *fleet, int64_t until_ns, load_fleet_fn is_done,
                   void *context) {
    int64_t look_ns = 0;
    int done = 0;
    while (!done) {
        struct epoll_event events[FLEET_EVENTS];
        int n = epoll_wait(fleet->epoll_fd, events, FLEET_EVENTS, 1);
        for (int i = 0; i < n; i++) {
            fleet->now_ns = clock_monotonic_ns();
            fleet_event(fleet, events[i].data.u64);
        }
        fleet->now_ns = clock_monotonic_ns();
        fleet_timers(fleet);
        if (is_done != NULL && fleet->now_ns >= look_ns) {
            done = is_done(fleet, context);
            look_ns = fleet->now_ns + FLEET_LOOK_NS;
        }
        if (fleet->now_ns >= until_ns ||
            (fleet->options.stop != NULL && *fleet->options.stop != 0)) {
            break;
        }
    }
    return done;
}

void load_fleet_drain(struct load_fleet *fleet) {
    fleet->drain_ns = clock_monotonic_ns();
}

void load_fleet_move(struct load_fleet *fleet, uint16_t port, int log_fd) {
    struct epoll_event log = {.events = EPOLLIN, .data.u64 = FLEET_LOG};
    fleet->options.port = port;
    fleet->options.log_fd = log_fd;
    if (log_fd >= 0) { /* unread, it would stop its writer sooner or later: not unseen */
        (void)epoll_ctl(fleet->epoll_fd, EPOLL_CTL_ADD, log_fd, &log);
    }
}

/* --- is it so -----------------------------------------------------------------------------------
 */

static uint32_t fleet_ready(const struct load_fleet *fleet) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < fleet->options.n_agents; i++) {
        n += (uint32_t)(fleet->agents[i].is_registered && fleet->agents[i].is_open);
    }
    return n;
}

int load_fleet_is_ready(struct load_fleet *fleet, void *context) {
    (void)context;
    return fleet_ready(fleet) == fleet->options.n_agents;
}

int load_fleet_is_idle(struct load_fleet *fleet, void *context) {
    (void)context;
    for (uint32_t i = 0; i < fleet->options.n_agents; i++) {
        if (!load_agent_is_idle(&fleet->agents[i])) {
            return 0;
        }
    }
    return 1;
}

int load_fleet_is_pushed(struct load_fleet *fleet, void *context) {
    (void)context;
    return !fleet->call.is_under_way && fleet_missing(&fleet->call) == 0;
}

int load_fleet_has_plan(struct load_fleet *fleet, void *context) {
    const struct load_job *job = &fleet->jobs[0];
    (void)context;
    for (uint32_t i = 0; i < job->n_agents; i++) {
        if (job->plan_step_ns == 0 || fleet->agents[i].plan_seen < job->plan_seq) {
            return 0;
        }
    }
    return 1;
}

int load_fleet_has_switched(struct load_fleet *fleet, void *context) {
    const struct load_job *job = &fleet->jobs[0];
    (void)context;
    for (uint32_t i = 0; i < job->n_agents; i++) {
        if (fleet->agents[i].n_acked * job->n_iterations <
            job->plan_from + UINT64_C(2) * job->n_iterations) {
            return 0;
        }
    }
    return 1;
}

/* --- figures ------------------------------------------------------------------------------------
 */

void load_fleet_figures(const struct load_fleet *fleet, struct load_figures *out) {
    *out = fleet->figures;
    out->n_ready = fleet_ready(fleet);
    out->n_unpushed += fleet_missing(&fleet->call);
}

uint64_t load_fleet_least_acknowledged(const struct load_fleet *fleet) {
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < fleet->options.n_agents; i++) {
        least = fleet->agents[i].n_acked < least ? fleet->agents[i].n_acked : least;
    }
    return least;
}

uint64_t load_fleet_most_acknowledged(const struct load_fleet *fleet) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < fleet->options.n_agents; i++) {
        most = fleet->agents[i].n_acked > most ? fleet->agents[i].n_acked : most;
    }
    return most;
}

void load_fleet_begin(struct load_fleet *fleet) {
    memset(&fleet->acks, 0, sizeof(fleet->acks));
    memset(&fleet->modes, 0, sizeof(fleet->modes));
    memset(&fleet->plans, 0, sizeof(fleet->plans));
    fleet->figures.longest_gap_ns = 0;
}

const struct load_times *load_fleet_acks(const struct load_fleet *fleet) {
    return &fleet->acks;
}

const struct load_times *load_fleet_modes(const struct load_fleet *fleet) {
    return &fleet->modes;
}

const struct load_times *load_fleet_plans(const struct load_fleet *fleet) {
    return &fleet->plans;
}
