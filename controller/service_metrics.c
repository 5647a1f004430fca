/* GET /metrics: the text format of Prometheus, version 0.0.4. Every set of labels is bounded:
 * routes, states and kinds by their tables, jobs by an option. A training job is `job_id`: `job` is
 * what Prometheus calls the targets it scrapes. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_tls.h"
#include "service_answer.h"
#include "service_process.h"

static const char metrics_type[] = "text/plain; version=0.0.4; charset=utf-8";

static void metrics_head(FILE *out, const char *name, const char *type, const char *help) {
    (void)fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void metrics_one(FILE *out, const char *name, const char *type, const char *help,
                        double value) {
    metrics_head(out, name, type, help);
    (void)fprintf(out, "%s %.15g\n", name, value);
}

/* A label's value: backslash, quote and newline are escaped, the rest is UTF-8 already. */
static void metrics_label(FILE *out, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '\\' || *text == '"') {
            (void)fputc('\\', out);
        }
        if (*text == '\n') {
            (void)fputs("\\n", out);
        } else {
            (void)fputc(*text, out);
        }
    }
}

/* --- the server --------------------------------------------------------------------------------
 */

static const char *metrics_method(size_t route) {
    return route < service_n_routes ? service_routes[route].method : "";
}

static const char *metrics_pattern(size_t route) {
    return route < service_n_routes ? service_routes[route].pattern : "";
}

static void metrics_requests(FILE *out, struct http_server *server) {
    struct http_route_stats stats;
    metrics_head(out, "deft_http_requests_total", "counter",
                 "Answers by route and class; no route: paths that there are not.");
    for (size_t i = 0; i <= service_n_routes; i++) {
        http_server_route_stats(server, i, &stats);
        for (int c = 1; c < HTTP_CLASSES; c++) {
            (void)fprintf(out,
                          "deft_http_requests_total{method=\"%s\",route=\"%s\",class=\"%dxx\"}"
                          " %llu\n",
                          metrics_method(i), metrics_pattern(i), c + 1,
                          (unsigned long long)stats.n_answers[c]);
        }
    }
}

static void metrics_latencies(FILE *out, struct http_server *server) {
    static const char name[] = "deft_http_request_duration_seconds";
    struct http_route_stats stats;
    metrics_head(out, name, "histogram", "From a whole head to the answer, streams left out.");
    for (size_t i = 0; i <= service_n_routes; i++) {
        const char *method = metrics_method(i);
        const char *route = metrics_pattern(i);
        http_server_route_stats(server, i, &stats);
        if (stats.n_timed == 0) {
            continue; /* a route that nobody asks for says nothing in fourteen lines */
        }
        for (size_t b = 0; b < HTTP_LATENCIES; b++) {
            (void)fprintf(out, "%s_bucket{method=\"%s\",route=\"%s\",le=\"%g\"} %llu\n", name,
                          method, route, (double)http_latencies_ns[b] / 1e9,
                          (unsigned long long)stats.n_within[b]);
        }
        (void)fprintf(out, "%s_bucket{method=\"%s\",route=\"%s\",le=\"+Inf\"} %llu\n", name, method,
                      route, (unsigned long long)stats.n_timed);
        (void)fprintf(out, "%s_sum{method=\"%s\",route=\"%s\"} %.15g\n", name, method, route,
                      (double)stats.sum_ns / 1e9);
        (void)fprintf(out, "%s_count{method=\"%s\",route=\"%s\"} %llu\n", name, method, route,
                      (unsigned long long)stats.n_timed);
    }
}

static void metrics_server(FILE *out, const struct service *service, struct http_server *server) {
    struct http_stats stats;
    metrics_requests(out, server);
    metrics_latencies(out, server);
    http_server_stats(server, &stats);
    metrics_one(out, "deft_http_connections", "gauge", "Open connections.",
                (double)stats.n_connections);
    metrics_one(out, "deft_http_connections_total", "counter", "Connections taken.",
                (double)stats.n_accepted);
    metrics_one(out, "deft_http_streams", "gauge", "Open event streams.", (double)stats.n_streams);
    metrics_one(out, "deft_http_malformed_total", "counter",
                "Requests that were not well-formed or too large to be read.",
                (double)stats.n_malformed);
    metrics_one(out, "deft_http_too_slow_total", "counter",
                "Connections cut off because they took too long.", (double)stats.n_too_slow);
    metrics_one(out, "deft_http_rate_limited_total", "counter",
                "Requests refused because their client asked too often.", (double)stats.n_limited);
    metrics_one(out, "deft_http_denied_total", "counter", "Requests refused for want of a right.",
                (double)stats.n_refused);
    if (service->tls != NULL) {
        metrics_one(out, "deft_tls_certificate_expiry_timestamp_seconds", "gauge",
                    "When the certificate in use ends.", (double)http_tls_expires_s(service->tls));
    }
}

/* --- the store ---------------------------------------------------------------------------------
 */

static void metrics_store(FILE *out, const struct service *service) {
    struct store_health health;
    store_health(service->store, &health);
    metrics_one(out, "deft_store_writes_total", "counter", "Writes that are on disk.",
                (double)health.n_written);
    metrics_one(out, "deft_store_write_failures_total", "counter",
                "Writes that the database refused.", (double)health.n_failed);
    metrics_one(out, "deft_store_queue", "gauge", "Writes that wait for the disk.",
                (double)health.n_queued);
    metrics_one(out, "deft_store_queue_bytes", "gauge", "Memory of the writes that wait.",
                (double)health.n_queued_bytes);
    metrics_one(out, "deft_store_failing", "gauge", "1 while the newest write was refused.",
                health.failing);
    metrics_one(out, "deft_store_waiting_seconds", "gauge",
                "How long the database has been at the write of now.",
                (double)health.waiting_ns / 1e9);
    metrics_one(out, "deft_store_upkeep_failing", "gauge",
                "1 while the newest round of upkeep did not end as it should.",
                health.upkeep_text[0] != '\0');
}

/* --- jobs --------------------------------------------------------------------------------------
 */

#define METRICS_PHASES (TUNER_RESUMING + 1)

struct metrics_job {
    char id[WIRE_ID_BYTES];
    char rule[16];
    char mode[16];
    double gain;
    double step_s;
    double coverage;
    double loss;
    double progress;
    double n_ranks;
    double n_ranks_heard;
};
struct metrics_jobs {
    unsigned capacity;
    unsigned n;
    unsigned n_left_out;
    struct metrics_job *jobs;
    uint64_t n_phase[METRICS_PHASES];
};

static void metrics_take_job(void *context, const struct wire_job *job) {
    struct metrics_jobs *jobs = context;
    for (int i = 0; i < METRICS_PHASES; i++) {
        jobs->n_phase[i] += strcmp(job->phase, tuner_phase_name((enum tuner_phase)i)) == 0;
    }
    if (jobs->n == jobs->capacity) {
        jobs->n_left_out++;
        return;
    }
    struct metrics_job *row = &jobs->jobs[jobs->n++];
    memcpy(row->id, job->id, sizeof(row->id));
    (void)snprintf(row->rule, sizeof(row->rule), "%s", job->rule);
    (void)snprintf(row->mode, sizeof(row->mode), "%s", job->mode);
    row->gain = job->gain;
    row->step_s = job->step_ns > 0 ? (double)job->step_ns / 1e9 : (double)NAN;
    row->coverage = job->coverage;
    row->loss = job->loss;
    row->progress = job->progress;
    row->n_ranks = job->n_ranks;
    row->n_ranks_heard = job->n_ranks_heard;
}

static void metrics_gauge(FILE *out, const struct metrics_jobs *jobs, const char *name,
                          const char *help, size_t offset) {
    metrics_head(out, name, "gauge", help);
    for (unsigned i = 0; i < jobs->n; i++) {
        double value;
        memcpy(&value, (const char *)&jobs->jobs[i] + offset, sizeof(value));
        if (isfinite(value)) {
            (void)fprintf(out, "%s{job_id=\"", name);
            metrics_label(out, jobs->jobs[i].id);
            (void)fprintf(out, "\"} %.15g\n", value);
        }
    }
}

static void metrics_info(FILE *out, const struct metrics_jobs *jobs, const char *name,
                         const char *help, const char *label, size_t offset) {
    metrics_head(out, name, "gauge", help);
    for (unsigned i = 0; i < jobs->n; i++) {
        const char *text = (const char *)&jobs->jobs[i] + offset;
        if (text[0] != '\0') {
            (void)fprintf(out, "%s{job_id=\"", name);
            metrics_label(out, jobs->jobs[i].id);
            (void)fprintf(out, "\",%s=\"%s\"} 1\n", label, text);
        }
    }
}

/* States that no job is in are there as well, so that an alert can compare with what was. */
static const char *const metrics_states[] = {"running", "finished", "failed", "lost"};
#define METRICS_STATES (sizeof(metrics_states) / sizeof(metrics_states[0]))

static void metrics_state(void *context, const char *state, uint64_t n) {
    uint64_t *n_jobs = context;
    for (size_t i = 0; i < METRICS_STATES; i++) {
        n_jobs[i] += strcmp(state, metrics_states[i]) == 0 ? n : 0;
    }
}

static enum deft_status metrics_of_states(FILE *out, const struct service *service,
                                          struct deft_error *error) {
    uint64_t n_jobs[METRICS_STATES] = {0};
    enum deft_status status = store_read_states(service->store, metrics_state, n_jobs, error);
    metrics_head(out, "deft_jobs", "gauge", "Jobs of the database by state.");
    for (size_t i = 0; status == DEFT_OK && i < METRICS_STATES; i++) {
        (void)fprintf(out, "deft_jobs{state=\"%s\"} %llu\n", metrics_states[i],
                      (unsigned long long)n_jobs[i]);
    }
    return status;
}

static void metrics_of_each(FILE *out, const struct metrics_jobs *jobs) {
    metrics_gauge(out, jobs, "deft_job_gain_ratio", "Step time of exact over that of now.",
                  offsetof(struct metrics_job, gain));
    metrics_gauge(out, jobs, "deft_job_step_seconds", "Step time.",
                  offsetof(struct metrics_job, step_s));
    metrics_gauge(out, jobs, "deft_job_coverage_ratio",
                  "Time of one all-reduce of everything over that of forward and backward.",
                  offsetof(struct metrics_job, coverage));
    metrics_gauge(out, jobs, "deft_job_loss", "Level of the training loss.",
                  offsetof(struct metrics_job, loss));
    metrics_gauge(out, jobs, "deft_job_progress_ratio",
                  "Progress per sample as a fraction of exact's, estimated.",
                  offsetof(struct metrics_job, progress));
    metrics_gauge(out, jobs, "deft_job_ranks", "Ranks of the job.",
                  offsetof(struct metrics_job, n_ranks));
    metrics_gauge(out, jobs, "deft_job_ranks_heard", "Ranks whose reports have come lately.",
                  offsetof(struct metrics_job, n_ranks_heard));
    metrics_info(out, jobs, "deft_job_rule_info", "The update rule of the plan that runs.", "rule",
                 offsetof(struct metrics_job, rule));
    metrics_info(out, jobs, "deft_job_mode_info", "What the controller may do to the job.", "mode",
                 offsetof(struct metrics_job, mode));
}

static enum deft_status metrics_jobs(FILE *out, struct service *service, struct deft_error *error) {
    struct metrics_jobs jobs = {.capacity = service->n_metric_jobs};
    struct jobs_metrics facts;
    jobs.jobs = calloc(jobs.capacity + 1, sizeof(*jobs.jobs));
    if (jobs.jobs == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the metrics of jobs");
    }
    jobs_each(service->jobs, metrics_take_job, &jobs);
    jobs_metrics(service->jobs, &facts);
    enum deft_status status = metrics_of_states(out, service, error);
    metrics_head(out, "deft_running_jobs", "gauge", "Running jobs by what their tuner does.");
    for (int i = 0; i < METRICS_PHASES; i++) {
        (void)fprintf(out, "deft_running_jobs{phase=\"%s\"} %llu\n",
                      tuner_phase_name((enum tuner_phase)i), (unsigned long long)jobs.n_phase[i]);
    }
    metrics_head(out, "deft_decisions_total", "counter", "Decisions by kind.");
    for (int i = TUNER_OBSERVED; i < TUNER_N_KINDS; i++) {
        (void)fprintf(out, "deft_decisions_total{kind=\"%s\"} %llu\n",
                      tuner_kind_name((enum tuner_kind)i),
                      (unsigned long long)facts.n_decisions[i]);
    }
    metrics_one(out, "deft_tuner_queue", "gauge", "Solves and decisions that wait to be made.",
                (double)facts.n_tasks);
    metrics_one(out, "deft_tuner_silent_seconds", "gauge",
                "Since the thread that makes decisions came round last.",
                (double)facts.silent_ns / 1e9);
    metrics_one(out, "deft_job_metrics_left_out", "gauge",
                "Running jobs beyond those that have metrics of their own.", jobs.n_left_out);
    metrics_of_each(out, &jobs);
    free(jobs.jobs);
    return status;
}

/* --- the process -------------------------------------------------------------------------------
 */

static void metrics_process(FILE *out) {
    struct service_process process;
    metrics_head(out, "deft_build_info", "gauge", "The program that answers.");
    (void)fprintf(out, "deft_build_info{version=\"%s\"} 1\n", DEFT_VERSION_TEXT);
    if (service_process_read(&process) == DEFT_OK) {
        metrics_one(out, "process_cpu_seconds_total", "counter", "Processor time.", process.cpu_s);
        metrics_one(out, "process_resident_memory_bytes", "gauge", "Resident memory.",
                    process.resident_bytes);
        metrics_one(out, "process_open_fds", "gauge", "Open file descriptors.", process.n_fds);
        metrics_one(out, "process_start_time_seconds", "gauge", "Start, since 1970.",
                    process.start_s);
    }
}

void service_metrics(struct http_request *request, void *context) {
    struct service *service = context;
    struct deft_error error = {0};
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    if (out == NULL) {
        http_respond_problem(request, 503, "no_memory", NULL, "there is no memory for metrics");
        return;
    }
    metrics_process(out);
    metrics_server(out, service, http_request_server(request));
    metrics_store(out, service);
    /* Half of the metrics say more than none when the database cannot be read. */
    deft_ignore(metrics_jobs(out, service, &error));
    int failed = ferror(out);
    failed = fclose(out) != 0 || failed;
    if (failed) {
        http_respond_problem(request, 503, "no_memory", NULL, "there is no memory for metrics");
    } else {
        http_respond(request, 200, metrics_type, text, n_bytes);
    }
    free(text);
}
