/* What must outlive the controller. The store*.c files are the only ones that know SQLite.
 *
 * Writes are queued to one thread, which commits many at once and then calls each write's `done`.
 * Reads run on connections of their own and never wait for writes. When a commit fails (disk full,
 * read-only, broken file) its writes fail, are counted, and the next ones are tried again. */
#ifndef STORE_H
#define STORE_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

#include "wire/json_out.h"
#include "wire/wire.h"

/* Writes that wait for the disk; beyond, DEFT_LIMIT: agents come again later. */
#define STORE_MAX_QUEUED       16384u
#define STORE_MAX_QUEUED_BYTES ((size_t)256 << 20)

/* How long history is kept, by when the controller received it. */
#define STORE_FOR_EVER INT64_MAX
struct store_keep {
    int64_t raw_ns;         /* iterations as ranks reported them */
    int64_t raw_iterations; /* of them, per job */
    int64_t minutes_ns;     /* roll-ups of a minute */
    int64_t hours_ns;       /* roll-ups of an hour */
    int64_t logs_ns;        /* events, as agents reported them */
    int64_t jobs_ns;        /* jobs that have ended, with their plans and decisions */
};
struct store_options {
    struct store_keep keep;
    int64_t max_bytes; /* of the database; beyond, the oldest history goes; 0: no bound */
    int64_t settle_ns; /* how long an iteration waits for reports of all its ranks */
    int64_t pause_ns;  /* between rounds of upkeep; 0: only store_tidy does any */
    int takes_network; /* a network file system will do */
};
#define STORE_MIN_MAX_BYTES (INT64_C(16) << 20)
void store_defaults(struct store_options *out);

struct store;

/* Opens or creates the file, takes its lock and brings its schema up to date. DEFT_STATE when
 * another controller has it. What is no database of ours, is damaged, cannot be written, or is on a
 * network file system without `takes_network`, is refused. store_open does no upkeep and
 * takes any place. */
DEFT_NODISCARD enum deft_status store_open_with(const char *path,
                                                const struct store_options *options,
                                                struct store **out, struct deft_error *error);
DEFT_NODISCARD enum deft_status store_open(const char *path, struct store **out,
                                           struct deft_error *error);
/* For a few small writes while another controller may be at work: no lock, no migration. Each of
 * the two waits some seconds for the other's transactions. */
DEFT_NODISCARD enum deft_status store_open_beside(const char *path, struct store **out,
                                                  struct deft_error *error);
/* For reading alone: no lock, no migration, no writer; another controller may be at work. */
DEFT_NODISCARD enum deft_status store_open_read(const char *path, struct store **out,
                                                struct deft_error *error);
/* Other ages and another size, from the next round of upkeep on. Any thread. */
void store_set_keep(struct store *store, const struct store_options *options);
/* Commits what is queued. Takes NULL. */
void store_close(struct store *store);

struct store_health {
    uint64_t n_failed;  /* writes refused since the start */
    uint64_t n_written; /* writes committed since the start */
    size_t n_queued;    /* writes that wait now */
    size_t n_queued_bytes;
    int64_t waiting_ns;                      /* how long the writer has been at its present batch */
    int failing;                             /* the newest commit failed */
    char text[DEFT_ERROR_TEXT_BYTES];        /* why; "" when it did not */
    char upkeep_text[DEFT_ERROR_TEXT_BYTES]; /* what failed in the newest round of upkeep; "" */
};
void store_health(struct store *store, struct store_health *out);

/* A whole round of upkeep as if it were `now_ns`, beside the writes; returns when it is over. */
DEFT_NODISCARD enum deft_status store_tidy(struct store *store, int64_t now_ns,
                                           struct deft_error *error);

/* --- writes ----------------------------------------------------------------------------------- */

struct store_db;

/* First member of every write below. `done` may be NULL; it is called on the writer's thread. */
struct store_write {
    enum deft_status (*apply)(struct store_db *db, struct store_write *write,
                              struct deft_error *error);
    void (*done)(struct store_write *write, enum deft_status status,
                 const struct deft_error *error);
    void *context;
    size_t n_bytes; /* roughly, for the bound on the queue */
    enum deft_status status;
    struct deft_error error;
    struct store_write *next;
};
/* The write stays alive until `done`. On failure `done` is not called. */
DEFT_NODISCARD enum deft_status store_submit(struct store *store, struct store_write *write,
                                             struct deft_error *error);
/* Submits and waits. Not from `done`. */
DEFT_NODISCARD enum deft_status store_run(struct store *store, struct store_write *write,
                                          struct deft_error *error);

/* A registration: finds or makes job, incarnation and agent. */
struct store_register {
    struct store_write write;
    const char *job;
    const struct wire_registration *registration;
    const char *registration_text;
    const char *mode; /* of a job that is new, or whose registration wishes one */
    struct wire_limits limits;
    int64_t now_ns;
    int64_t incarnation;    /* out */
    int is_new;             /* out: the incarnation was not there before */
    int has_older;          /* out, of a new one: the job has older ones */
    uint64_t committed_seq; /* out */
    uint32_t n_ranks;       /* out: what the incarnation was registered with */
    uint64_t table_hash;    /* out */
};
void store_register_init(struct store_register *write);

/* A report: rows that are there already stay as they are. */
struct store_report {
    struct store_write write;
    int64_t incarnation;
    struct wire_report report;
    int64_t now_ns;
    int is_fresh;           /* out: 0: this sequence number was committed before */
    uint64_t committed_seq; /* out */
};
void store_report_init(struct store_report *write);

/* What changed about an incarnation, in one transaction; NULL members stay as they are. */
struct store_audit; /* in store_access.h */
struct store_change {
    struct store_write write;
    int64_t incarnation;
    const char *job;
    const char *state; /* of the incarnation and of its job */
    const char *mode;  /* of the job */
    const struct wire_limits *limits;
    int frozen;      /* of the job; -1: stays as it is */
    const char *pin; /* of the job */
    const char *summary;
    const char *tuner;
    const char *profile;
    const struct wire_decision *decision;
    uint64_t plan_seq; /* 0: no plan */
    uint64_t plan_hash;
    const char *plan;
    double max_loss; /* the fuse of that plan; NaN: not watched */
    double max_grad_sq;
    const char *solution;
    const char *inputs;              /* of the decision, for a replay */
    const char *solve;               /* what was solved for it: deft.solve/1 */
    const struct store_audit *audit; /* of an operator's change */
    int64_t now_ns;
};
void store_change_init(struct store_change *write);

/* What a job wants kept; members that are 0 are as for all jobs. DEFT_NOT_FOUND: no such job. */
struct store_keep_job {
    struct store_write write;
    const char *job;
    struct store_keep keep;
    const struct store_audit *audit; /* NULL: none */
};
void store_keep_job_init(struct store_keep_job *write);

/* A job with all that is known of it: it is gone when this returns, its rows go later.
 * DEFT_NOT_FOUND: no such job; DEFT_STATE: it is running. */
struct store_remove {
    struct store_write write;
    const char *job;
    const struct store_audit *audit; /* NULL: none */
};
void store_remove_init(struct store_remove *write);

/* Ids of the API. An incarnation is "i" and a number; a plan is "iNUMBER.SEQ". */
#define STORE_ID_BYTES 48u

/* --- reads ------------------------------------------------------------------------------------ */

struct store_job {
    char id[WIRE_ID_BYTES];
    char mode[16];
    struct wire_limits limits;
    int frozen;
    char pin[STORE_ID_BYTES]; /* id of one of its plans; "": none */
};
/* An incarnation as it was left; release with store_incarnation_done. */
struct store_incarnation {
    int64_t id;
    struct store_job job;
    char state[16];
    int64_t registered_ns;
    int64_t updated_ns;
    int is_superseded; /* there is a newer one of this job */
    char *registration;
    char *tuner;
    uint64_t n_iterations;          /* counted once for all ranks */
    char decision[WIRE_TEXT_BYTES]; /* the newest; "" */
    uint64_t plan_seq;              /* the newest; 0: none */
    uint64_t plan_hash;
    char *plan; /* NULL: none */
    double max_loss;
    double max_grad_sq;
};
void store_incarnation_done(struct store_incarnation *incarnation);
/* DEFT_NOT_FOUND when there is none. */
DEFT_NODISCARD enum deft_status store_read_incarnation(struct store *store, int64_t id,
                                                       struct store_incarnation *out,
                                                       struct deft_error *error);
/* Ranks that have said "finished" or "failed"; `found` is called for each. */
typedef void (*store_end_fn)(void *context, uint32_t rank, int failed);
DEFT_NODISCARD enum deft_status store_read_ends(struct store *store, int64_t incarnation,
                                                store_end_fn found, void *context,
                                                struct deft_error *error);
/* Ids of incarnations that are running or lost, newest first; malloc'ed. */
DEFT_NODISCARD enum deft_status store_read_open(struct store *store, size_t capacity,
                                                int64_t **out_ids, size_t *out_n,
                                                struct deft_error *error);
DEFT_NODISCARD enum deft_status store_read_job(struct store *store, const char *id,
                                               struct store_job *out, char **out_summary,
                                               struct deft_error *error);
/* Decisions of a job, all its incarnations, oldest first. */
struct store_decision {
    int64_t incarnation;
    int64_t id;
    const char *kind;
    uint64_t iteration;
    uint64_t plan_seq;
    const char *reason;
    const char *inputs;
    const char *solve;
};
typedef enum deft_status (*store_decision_fn)(void *context, const struct store_decision *decision,
                                              struct deft_error *error);
DEFT_NODISCARD enum deft_status store_read_decisions(struct store *store, const char *job,
                                                     store_decision_fn found, void *context,
                                                     struct deft_error *error);
/* Summaries of a page of jobs; NULL filters match all. `found` is called for each. */
enum store_order { STORE_BY_CREATION, STORE_BY_ID, STORE_BY_USER };
struct store_filter {
    const char *state;
    const char *user;
    int64_t since_ns; /* jobs that run, or have changed since */
    enum store_order order;
    int is_rising; /* 0: the newest or last first */
    uint64_t limit;
    uint64_t offset;
};
typedef enum deft_status (*store_summary_fn)(void *context, const char *id, const char *summary);
DEFT_NODISCARD enum deft_status store_read_jobs(struct store *store,
                                                const struct store_filter *filter,
                                                store_summary_fn found, void *context,
                                                uint64_t *out_total, struct deft_error *error);
/* The plan text and hash of one sequence number; the text is malloc'ed. */
DEFT_NODISCARD enum deft_status store_read_plan_text(struct store *store, int64_t incarnation,
                                                     uint64_t seq, char **out, uint64_t *out_hash,
                                                     struct deft_error *error);

/* --- answers of the API, printed while they are read ------------------------------------------ */

struct store_range {
    uint64_t from;
    uint64_t to;     /* inclusive */
    uint64_t points; /* at most; 0: every iteration up to STORE_MAX_POINTS */
};
#define STORE_MAX_POINTS 10000u
DEFT_NODISCARD enum deft_status store_print_iterations(struct store *store, int64_t incarnation,
                                                       const struct store_range *range,
                                                       struct json_out *out,
                                                       struct deft_error *error);
DEFT_NODISCARD enum deft_status store_print_losses(struct store *store, int64_t incarnation,
                                                   const struct store_range *range,
                                                   struct json_out *out, struct deft_error *error);
DEFT_NODISCARD enum deft_status store_print_links(struct store *store, int64_t incarnation,
                                                  struct json_out *out, struct deft_error *error);
DEFT_NODISCARD enum deft_status store_print_plans(struct store *store, int64_t incarnation,
                                                  struct json_out *out, struct deft_error *error);
DEFT_NODISCARD enum deft_status store_print_decisions(struct store *store, int64_t incarnation,
                                                      struct json_out *out,
                                                      struct deft_error *error);
DEFT_NODISCARD enum deft_status store_print_incarnation(struct store *store, int64_t incarnation,
                                                        struct json_out *out,
                                                        struct deft_error *error);
/* DEFT_NOT_FOUND when there is none. `explain`: with the solution and what was measured. */
DEFT_NODISCARD enum deft_status store_print_plan(struct store *store, int64_t incarnation,
                                                 uint64_t seq, int explain, struct json_out *out,
                                                 struct deft_error *error);
/* A plan that did well: the last that was committed, and not left for harm, in the newest start
 * that has come to a verdict among those before `incarnation` with the same table, world and links
 * and of the same user. */
struct store_warm_key {
    uint64_t table_hash;
    uint32_t n_ranks;
    char user[WIRE_ID_BYTES];
    uint32_t n_links;
    char links[DSCHED_MAX_LINKS][WIRE_ID_BYTES];
};
struct store_warm {
    char id[STORE_ID_BYTES];
    uint64_t hash;
    char *plan; /* malloc'ed deft.plan/1 */
};
/* DEFT_NOT_FOUND when there is none. */
DEFT_NODISCARD enum deft_status store_read_warm(struct store *store, int64_t incarnation,
                                                const struct store_warm_key *key,
                                                struct store_warm *out, struct deft_error *error);
/* The newest plan of a job with this hash; DEFT_NOT_FOUND when there is none. */
DEFT_NODISCARD enum deft_status store_read_plan_id(struct store *store, const char *job,
                                                   uint64_t hash, char out[STORE_ID_BYTES],
                                                   struct deft_error *error);
/* What a job wants kept; members that are 0 are as for all jobs. */
DEFT_NODISCARD enum deft_status store_read_keep(struct store *store, const char *job,
                                                struct store_keep *out, struct deft_error *error);

/* The newest solved profile; malloc'ed; DEFT_NOT_FOUND when there is none. */
DEFT_NODISCARD enum deft_status store_read_profile(struct store *store, int64_t incarnation,
                                                   char **out, struct deft_error *error);

void store_id_text(int64_t incarnation, char out[STORE_ID_BYTES]);
void store_plan_id_text(int64_t incarnation, uint64_t seq, char out[STORE_ID_BYTES]);
/* DEFT_NOT_FOUND for what cannot be an id. */
DEFT_NODISCARD enum deft_status store_id_parse(const char *text, int64_t *out);
DEFT_NODISCARD enum deft_status store_plan_id_parse(const char *text, int64_t *out_incarnation,
                                                    uint64_t *out_seq);

/* "2026-11-30T03:01:10.123Z" of a wall clock in ns. */
void store_time_text(int64_t wall_ns, char out[32]);
/* The same backwards, with or without a fraction; DEFT_INVALID for what is no such time. */
DEFT_NODISCARD enum deft_status store_time_parse(const char *text, int64_t *out_wall_ns);

#endif
