/* The jobs that are running: what their ranks report goes to their tuners, and what the tuners
 * decide goes to the database and to the agents.
 *
 * Any thread may call. One thread of its own solves and carries decisions out, so that neither
 * requests nor the database wait for a solver. */
#ifndef JOBS_H
#define JOBS_H

#include <stdint.h>

#include <deft/status.h>

#include "base/log.h"
#include "http/http_server.h"
#include "store/store.h"
#include "store/store_access.h"
#include "tuning/tuner.h"
#include "wire/wire.h"

/* An incarnation nobody reports for is lost after a minute: agents report every second, of ranks
 * that do not train every 20, and back off to ten. */
#define JOBS_LOST_NS INT64_C(60000000000)
/* A lost one is forgotten after an hour and read from the database when it comes back. */
#define JOBS_FORGET_NS INT64_C(3600000000000)
/* Incarnations taken up at the start, newest first; others when they report. */
#define JOBS_MAX_LOADED 4096u

struct jobs;

struct jobs_options {
    struct store *store;
    const struct log *log;
    struct tuner_config tuner;
    enum tuner_mode mode;      /* of new jobs */
    struct wire_limits limits; /* of new jobs that wish nothing */
};

/* Reads what was running from the database and starts the thread. */
DEFT_NODISCARD enum deft_status jobs_start(const struct jobs_options *options, struct jobs **out,
                                           struct deft_error *error);
/* For jobs that are new from now on. Any thread. */
void jobs_set_defaults(struct jobs *jobs, enum tuner_mode mode, const struct wire_limits *limits);
/* After the HTTP server has stopped, before the store closes. Takes NULL. */
void jobs_stop(struct jobs *jobs);

/* Takes the registration over when it returns DEFT_OK; then `done` is called once, from another
 * thread, after it is on disk or has failed: DEFT_MISMATCH when the incarnation is there with other
 * ranks or tensors, and `field` names which; it is NULL otherwise. DEFT_LIMIT: too many are
 * waiting. */
typedef void (*jobs_register_fn)(void *context, enum deft_status status,
                                 const struct wire_registered *registered, const char *field,
                                 const struct deft_error *error);
DEFT_NODISCARD enum deft_status jobs_register(struct jobs *jobs, const char *job,
                                              struct wire_registration *registration,
                                              jobs_register_fn done, void *context,
                                              struct deft_error *error);

/* Takes the report over when it returns DEFT_OK; then `done` is called once, from another thread,
 * after the report is on disk or has failed. DEFT_NOT_FOUND: no such incarnation; DEFT_INVALID:
 * the report does not suit it; DEFT_LIMIT: too many are waiting. */
typedef void (*jobs_report_fn)(void *context, enum deft_status status, uint64_t committed_seq,
                               const struct deft_error *error);
DEFT_NODISCARD enum deft_status jobs_report(struct jobs *jobs, int64_t incarnation,
                                            struct wire_report *report, jobs_report_fn done,
                                            void *context, struct deft_error *error);

/* DEFT_NOT_FOUND: no such incarnation. */
DEFT_NODISCARD enum deft_status jobs_has(struct jobs *jobs, int64_t incarnation,
                                         struct deft_error *error);
/* Takes the stream over: sends the newest plan if its number is above `last_seq`, then the mode. */
void jobs_stream(struct jobs *jobs, int64_t incarnation, struct http_stream *stream,
                 uint64_t last_seq);

/* The job of an incarnation. */
DEFT_NODISCARD enum deft_status jobs_name(struct jobs *jobs, int64_t incarnation,
                                          char out[WIRE_ID_BYTES], struct deft_error *error);

/* DEFT_NOT_FOUND: no such job. The record is written with the change. */
DEFT_NODISCARD enum deft_status jobs_set_mode(struct jobs *jobs, const char *job,
                                              enum tuner_mode mode, const struct store_audit *audit,
                                              struct deft_error *error);
DEFT_NODISCARD enum deft_status jobs_set_limits(struct jobs *jobs, const char *job,
                                                const struct wire_limits *limits,
                                                const struct store_audit *audit,
                                                struct deft_error *error);

/* `plan`: id of one of the job's plans, or its hash; "": none. The id that was pinned goes to
 * `out`. DEFT_INVALID: it is neither, DEFT_NOT_FOUND: no such job or plan, DEFT_MISMATCH: the
 * running ranks cannot run it. */
DEFT_NODISCARD enum deft_status jobs_set_pin(struct jobs *jobs, const char *job, const char *plan,
                                             const struct store_audit *audit, struct wire_pin *out,
                                             struct deft_error *error);
/* Turns the text of a pin into the id of a plan of the job, as above. */
DEFT_NODISCARD enum deft_status jobs_find_pin(struct jobs *jobs, const char *job, const char *plan,
                                              struct wire_pin *out, struct deft_error *error);
DEFT_NODISCARD enum deft_status jobs_set_frozen(struct jobs *jobs, const char *job, int frozen,
                                                const struct store_audit *audit,
                                                struct deft_error *error);

/* Removes an ended or lost job with all that is known of it. DEFT_STATE: it is running. */
DEFT_NODISCARD enum deft_status jobs_remove(struct jobs *jobs, const char *job,
                                            const struct store_audit *audit,
                                            struct deft_error *error);

DEFT_NODISCARD enum deft_status jobs_view(struct jobs *jobs, const char *job, struct wire_job *out,
                                          struct deft_error *error);
DEFT_NODISCARD enum deft_status jobs_list(struct jobs *jobs, const struct store_filter *filter,
                                          struct wire_jobs *out, struct deft_error *error);
struct jobs_metrics {
    uint64_t n_decisions[TUNER_N_KINDS]; /* since the start */
    size_t n_tasks;                      /* what the thread has still to do */
    int64_t silent_ns;                   /* since the thread came round last */
};
void jobs_metrics(struct jobs *jobs, struct jobs_metrics *out);
/* Calls `found` for the newest incarnation of every job that runs. It must not call back. */
typedef void (*jobs_each_fn)(void *context, const struct wire_job *job);
void jobs_each(struct jobs *jobs, jobs_each_fn found, void *context);

/* The deft.profile/1 of what is observed now, or the newest that was solved; malloc'ed. */
DEFT_NODISCARD enum deft_status jobs_profile(struct jobs *jobs, int64_t incarnation, char **out,
                                             struct deft_error *error);

/* The deft.timeline/1 of a plan of the incarnation, on that profile; malloc'ed. DEFT_NOT_FOUND:
 * there is no such plan, or no profile; DEFT_MISMATCH: it does not fit the profile. */
DEFT_NODISCARD enum deft_status jobs_timeline(struct jobs *jobs, struct store *store,
                                              int64_t incarnation, uint64_t seq, char **out,
                                              struct deft_error *error);

#endif
