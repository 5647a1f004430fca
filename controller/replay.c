#include "replay.h"

#include <argp.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dsched/planner.h>

#include "base/streams.h"
#include "store/store.h"
#include "store/store_file.h"
#include "tuning/tuner_state.h"
#include "wire/json_out.h"
#include "wire/wire.h"

enum replay_exit { REPLAY_AGREES = 0, REPLAY_DIFFERS = 1, REPLAY_FAILED = 2 };

#define REPLAY_JSON 256

struct replay {
    const char *db;
    const char *job;
    int is_json;
    struct json_out json;
    uint64_t n_agreed;
    uint64_t n_differing;
    uint64_t n_solved;   /* of both */
    uint64_t n_not_kept; /* made by a controller that kept no inputs */
};

/* --- one decision ----------------------------------------------------------------------------- */

struct replay_verdict {
    int is_kept;
    int is_solved;
    char difference[2 * WIRE_TEXT_BYTES]; /* "": it agrees */
};

static void replay_differs(struct replay_verdict *verdict, const char *format, ...)
    DEFT_PRINTF(2, 3);
static void replay_differs(struct replay_verdict *verdict, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(verdict->difference, sizeof(verdict->difference), format, arguments);
    va_end(arguments);
}

/* What is solved again is compared with what the tuner was told of the solution. */
static void replay_solve(const char *text, const struct tuner_evidence *evidence,
                         struct replay_verdict *verdict) {
    struct wire_solve solve;
    struct dsched_solution solution = {0};
    struct deft_error error = {0};
    struct dsched_error why = {0};
    if (wire_solve_decode(text, strlen(text), &solve, &error) != DEFT_OK) {
        replay_differs(verdict, "what was solved cannot be read: %s", error.text);
        return;
    }
    verdict->is_solved = 1;
    if (dsched_solve(&solve.profile, &solve.options, &solution, &why) != DSCHED_OK) {
        replay_differs(verdict, "solved again there is no plan: %s", why.text);
    } else if (!evidence->has_proposal) {
        replay_differs(verdict, "solved again there is a plan, and was none");
    } else {
        const struct tuner_plan *was = &evidence->proposal;
        uint64_t hash = dsched_plan_hash(&solution.plan);
        uint32_t progress_ppm = solution.candidates[solution.chosen].progress_ppm;
        if (hash != was->hash) {
            replay_differs(verdict,
                           "solved again the plan has the hash %016" PRIx64 ", not %016" PRIx64,
                           hash, was->hash);
        } else if (progress_ppm != was->progress_ppm) {
            replay_differs(
                verdict, "solved again the plan makes a progress of %" PRIu32 " ppm, not %" PRIu32,
                progress_ppm, was->progress_ppm);
        } else if (solution.plan.forecast.step_ns != was->predicted_step_ns) {
            replay_differs(verdict,
                           "solved again a step of %" PRId64 " ns is predicted, not %" PRId64,
                           solution.plan.forecast.step_ns, was->predicted_step_ns);
        }
    }
    dsched_solution_done(&solution);
    wire_solve_done(&solve);
}

static void replay_decide(const struct store_decision *was, struct replay_verdict *verdict) {
    struct tuner_inputs inputs;
    struct tuner_decision again;
    struct deft_error error = {0};
    if (tuner_inputs_decode(was->inputs, strlen(was->inputs), &inputs, &error) != DEFT_OK) {
        replay_differs(verdict, "its inputs cannot be read: %s", error.text);
        return;
    }
    (void)tuner_core(&inputs.config, &inputs.before, &inputs.evidence, &again);
    const char *kind = tuner_kind_name(again.kind);
    if (strcmp(kind, was->kind) != 0) {
        replay_differs(verdict, "decided again it is '%s': %s", kind, again.reason);
    } else if (again.plan_seq != was->plan_seq) {
        replay_differs(verdict, "decided again it is about plan %" PRIu64 ", not %" PRIu64,
                       again.plan_seq, was->plan_seq);
    } else if (again.iteration != was->iteration) {
        replay_differs(verdict, "decided again it is at iteration %" PRIu64, again.iteration);
    } else if (strcmp(again.reason, was->reason) != 0) {
        replay_differs(verdict, "decided again the reason is: %s", again.reason);
    } else if (was->solve[0] != '\0') {
        replay_solve(was->solve, &inputs.evidence, verdict);
    }
}

/* --- what is told ----------------------------------------------------------------------------- */

/* Reasons hold sentences of ranks: nothing in them may steer a terminal. */
static void replay_print_text(const char *text) {
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        (void)putchar(c < 0x20 || c == 0x7f ? '?' : c);
    }
}

static void replay_print_row(const struct store_decision *decision, const char *verdict,
                             const char *sentence) {
    char id[STORE_ID_BYTES];
    store_id_text(decision->incarnation, id);
    (void)printf("%-6s %10" PRIu64 "  %-9s %-9s ", id, decision->iteration, decision->kind,
                 verdict);
    replay_print_text(sentence);
    (void)putchar('\n');
}

static void replay_add_row(struct json_out *json, const struct store_decision *decision,
                           const char *name, const struct replay_verdict *verdict) {
    char id[STORE_ID_BYTES];
    store_id_text(decision->incarnation, id);
    json_out_begin_object(json, NULL);
    json_out_text(json, "incarnation", id);
    json_out_uint(json, "iteration", decision->iteration);
    json_out_text(json, "kind", decision->kind);
    json_out_uint(json, "plan_seq", decision->plan_seq);
    json_out_text(json, "reason", decision->reason);
    json_out_text(json, "replay", name);
    json_out_bool(json, "solved", verdict->is_solved);
    json_out_text(json, "difference", verdict->difference);
    json_out_end_object(json);
}

static enum deft_status replay_found(void *context, const struct store_decision *decision,
                                     struct deft_error *error) {
    struct replay *replay = context;
    struct replay_verdict verdict = {.is_kept = decision->inputs[0] != '\0'};
    const char *name = "not kept";
    (void)error;
    if (verdict.is_kept) {
        replay_decide(decision, &verdict);
        name = verdict.difference[0] == '\0' ? "agreed" : "differs";
        replay->n_agreed += verdict.difference[0] == '\0';
        replay->n_differing += verdict.difference[0] != '\0';
        replay->n_solved += (uint64_t)verdict.is_solved;
    } else {
        replay->n_not_kept++;
    }
    if (replay->is_json) {
        replay_add_row(&replay->json, decision, name, &verdict);
    } else {
        replay_print_row(decision, name,
                         verdict.difference[0] != '\0' ? verdict.difference : decision->reason);
    }
    return DEFT_OK;
}

static void replay_print_sum(const struct replay *replay) {
    (void)printf("%" PRIu64 " of %" PRIu64 " decisions agree (%" PRIu64 " solved again)",
                 replay->n_agreed, replay->n_agreed + replay->n_differing, replay->n_solved);
    if (replay->n_not_kept > 0) {
        (void)printf("; of %" PRIu64 " more the inputs were not kept", replay->n_not_kept);
    }
    (void)putchar('\n');
}

static enum deft_status replay_print_json(struct replay *replay, struct deft_error *error) {
    char *text = NULL;
    json_out_end_array(&replay->json);
    json_out_uint(&replay->json, "n_agreed", replay->n_agreed);
    json_out_uint(&replay->json, "n_differing", replay->n_differing);
    json_out_uint(&replay->json, "n_solved", replay->n_solved);
    json_out_uint(&replay->json, "n_not_kept", replay->n_not_kept);
    json_out_end_object(&replay->json);
    enum deft_status status = json_out_finish(&replay->json, &text, error);
    if (status == DEFT_OK) {
        (void)puts(text);
        free(text);
    }
    return status;
}

/* --- all of them ------------------------------------------------------------------------------ */

static enum deft_status replay_job(struct replay *replay, struct store *store,
                                   struct deft_error *error) {
    struct store_job job;
    char *summary = NULL;
    enum deft_status status = store_read_job(store, replay->job, &job, &summary, error);
    free(summary);
    if (status == DEFT_NOT_FOUND) {
        return deft_fail(error, status, 0, "there is no job '%.127s' in '%.250s'", replay->job,
                         replay->db);
    }
    if (status != DEFT_OK) {
        return status;
    }
    if (replay->is_json) {
        json_out_begin_object(&replay->json, NULL);
        json_out_text(&replay->json, "job", replay->job);
        json_out_begin_array(&replay->json, "decisions");
    } else {
        (void)printf("%-6s %10s  %-9s %-9s %s\n", "START", "ITERATION", "KIND", "REPLAY",
                     "SENTENCE");
    }
    status = store_read_decisions(store, replay->job, replay_found, replay, error);
    if (status == DEFT_OK && replay->is_json) {
        status = replay_print_json(replay, error);
    } else if (status == DEFT_OK) {
        replay_print_sum(replay);
    }
    json_out_done(&replay->json);
    return status == DEFT_OK ? streams_flush(error) : status;
}

static error_t replay_parse(int key, char *argument, struct argp_state *state) {
    struct replay *replay = state->input;
    switch (key) {
    case REPLAY_JSON:
        replay->is_json = 1;
        return 0;
    case ARGP_KEY_ARG:
        if (replay->db == NULL) {
            replay->db = argument;
        } else if (replay->job == NULL) {
            replay->job = argument;
        } else {
            argp_error(state, "'%s' was not expected", argument);
        }
        return 0;
    case ARGP_KEY_END:
        if (replay->job == NULL) {
            argp_error(state, "a database and the id of a job are expected");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int replay_main(int argc, char **argv) {
    static const struct argp_option options[] = {
        {"json", REPLAY_JSON, NULL, 0, "Print one JSON object", 0}, {0}};
    static const struct argp argp = {
        .options = options,
        .parser = replay_parse,
        .args_doc = "DB JOB",
        .doc = "Decides again what was decided for JOB, from the inputs that the database DB keeps "
               "with each decision, solves again what was solved, and compares.\v"
               "DB is only read, also while a controller has it open. Exit status: 0 when all "
               "decisions agree, 1 when one differs, 2 for a wrong command line or when there is "
               "nothing to compare."};
    char name[] = "deft-controller replay";
    struct replay replay = {0};
    struct store *store = NULL;
    struct deft_error error = {0};
    argp_err_exit_status = REPLAY_FAILED;
    argv[0] = name;
    (void)argp_parse(&argp, argc, argv, 0, NULL, &replay);
    enum deft_status status = store_file_expect(replay.db, &error);
    if (status == DEFT_OK) {
        status = store_open_read(replay.db, &store, &error);
    }
    if (status == DEFT_OK) {
        status = replay_job(&replay, store, &error);
    }
    store_close(store);
    if (status != DEFT_OK) {
        (void)fprintf(stderr, "%s: %s\n", name, error.text);
        return REPLAY_FAILED;
    }
    return replay.n_differing > 0 ? REPLAY_DIFFERS : REPLAY_AGREES;
}
