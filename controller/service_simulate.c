/* POST /simulate: every policy on a profile that the client gives. Solving takes seconds, and the
 * server's threads have agents to serve: it is done on a thread of its own, one at a time. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <dsched/planner.h>

#include "base/clock.h"
#include "service_answer.h"

#define SIMULATE_MAX_POLICIES 32u
/* What the slowest policy does in a few seconds; larger ones are for `deft compare`. */
#define SIMULATE_MAX_TENSORS 16384u

struct simulation {
    struct service *service;
    struct http_request *request;
    struct dsched_profile profile;
};

static void simulation_free(struct simulation *simulation) {
    if (simulation != NULL) {
        dsched_profile_done(&simulation->profile);
        free(simulation);
    }
}

static enum deft_status simulate_all(const struct dsched_profile *profile, char **out,
                                     struct deft_error *error) {
    struct wire_comparison_row rows[SIMULATE_MAX_POLICIES];
    struct dsched_bounds bounds = {0};
    struct dsched_error why = {0};
    size_t n = 0;
    memset(rows, 0, sizeof(rows));
    enum dsched_status status = dsched_bounds(profile, &bounds, &why);
    for (; status == DSCHED_OK && dsched_policies[n] != NULL && n < SIMULATE_MAX_POLICIES; n++) {
        int64_t begin_ns = clock_monotonic_ns();
        rows[n].policy = dsched_policies[n];
        status = rows[n].policy->simulate(profile, NULL, NULL, &rows[n].outcome, &why);
        rows[n].solve_ns = clock_monotonic_ns() - begin_ns;
    }
    if (status != DSCHED_OK) {
        return deft_fail(error, status == DSCHED_NO_MEMORY ? DEFT_NO_MEMORY : DEFT_INVALID, 0,
                         "the profile cannot be simulated: %s", why.text);
    }
    wire_comparison_relate(rows, n);
    return wire_comparison_encode(profile, &bounds, rows, n, out, error);
}

static void *simulate_run(void *context) {
    struct simulation *simulation = context;
    struct http_request *request = simulation->request;
    struct deft_error error = {0};
    char *text = NULL;
    enum deft_status status = simulate_all(&simulation->profile, &text, &error);
    /* Behind the answer the service may end. */
    atomic_store(&simulation->service->is_simulating, 0);
    simulation_free(simulation);
    service_answer_text(request, status, 200, text, &error);
    return NULL;
}

/* Takes the simulation over. */
static enum deft_status simulate_start(struct simulation *simulation, struct deft_error *error) {
    pthread_attr_t detached;
    pthread_t thread;
    struct service *service = simulation->service;
    if (atomic_exchange(&service->is_simulating, 1)) {
        simulation_free(simulation);
        return deft_fail(error, DEFT_LIMIT, 0,
                         "another profile is being simulated: one is taken at a time");
    }
    (void)pthread_attr_init(&detached);
    (void)pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    int code = pthread_create(&thread, &detached, simulate_run, simulation);
    (void)pthread_attr_destroy(&detached);
    if (code != 0) {
        simulation_free(simulation);
        atomic_store(&service->is_simulating, 0);
        return deft_fail(error, DEFT_NO_MEMORY, code, "there is no thread to simulate with: %s",
                         strerrordesc_np(code));
    }
    return DEFT_OK;
}

void service_simulate(struct http_request *request, void *context) {
    struct deft_error error = {0};
    size_t n_bytes = 0;
    if (!service_is_json(request)) {
        return;
    }
    const char *body = http_request_body(request, &n_bytes);
    struct simulation *simulation = calloc(1, sizeof(*simulation));
    if (simulation == NULL) {
        http_respond_problem(request, 503, "no_memory", NULL, "no memory for a profile");
        return;
    }
    enum deft_status status = wire_profile_decode(body, n_bytes, &simulation->profile, &error);
    if (status == DEFT_LIMIT) { /* of the profile: to come again later is no help */
        error.status = status = DEFT_INVALID;
    }
    if (status == DEFT_OK && simulation->profile.n_tensors > SIMULATE_MAX_TENSORS) {
        status = deft_fail(&error, DEFT_INVALID, 0,
                           "tensors: %u, but at most %u are simulated here; 'deft compare' has no "
                           "such limit",
                           simulation->profile.n_tensors, SIMULATE_MAX_TENSORS);
    }
    if (status != DEFT_OK) {
        simulation_free(simulation);
        service_fail(request, &error);
        return;
    }
    simulation->service = context;
    simulation->request = request;
    http_request_defer(request);
    if (simulate_start(simulation, &error) != DEFT_OK) {
        service_fail(request, &error);
    }
}
