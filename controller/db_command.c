#include "db_command.h"

#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "beside.h"
#include "keep_options.h"
#include "store/store.h"
#include "store/store_access.h"
#include "store/store_file.h"

enum db_exit { DB_OK = 0, DB_FAILED = 1, DB_USAGE = 2 };
enum db_key { KEY_AS = 256 };

#define DB_MAX_ARGUMENTS 3u

struct db_input {
    const char *verb;
    unsigned n_arguments;
    const char *arguments[DB_MAX_ARGUMENTS];
    const char *as;
};

/* --- words --------------------------------------------------------------------------------------
 */

static void db_size_text(int64_t n_bytes, char out[24]) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double size = (double)n_bytes;
    size_t unit = 0;
    while (size >= 1000 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        size /= 1000;
        unit++;
    }
    (void)snprintf(out, 24, "%.*f %s", unit > 0 ? 1 : 0, size, units[unit]);
}

static int db_done(enum deft_status status, const struct deft_error *error) {
    if (status != DEFT_OK) {
        (void)fprintf(stderr, "deft-controller db: %s\n", error->text);
        return DB_FAILED;
    }
    return DB_OK;
}

static int db_no_memory(void) {
    (void)fprintf(stderr, "deft-controller db: no memory\n");
    return DB_FAILED;
}

/* --- check --------------------------------------------------------------------------------------
 */

static void db_print_tables(const struct store_file_check *check) {
    (void)printf("%-14s %12s %12s\n", "table", "rows", "size");
    for (unsigned i = 0; i < check->n_tables; i++) {
        const struct store_file_table *table = &check->tables[i];
        char rows[24] = "?";
        char size[24] = "?";
        if (table->n_rows >= 0) {
            (void)snprintf(rows, sizeof(rows), "%" PRId64, table->n_rows);
        }
        if (table->n_bytes >= 0) {
            db_size_text(table->n_bytes, size);
        }
        (void)printf("%-14s %12s %12s\n", table->name, rows, size);
    }
}

static int db_check(const struct db_input *input) {
    struct deft_error error = {0};
    char size[24];
    char free_size[24];
    char log_size[24];
    struct store_file_check *check = calloc(1, sizeof(*check));
    if (check == NULL) {
        return db_no_memory();
    }
    enum deft_status status = store_file_check(input->arguments[0], check, &error);
    if (status != DEFT_OK) {
        free(check);
        return db_done(status, &error);
    }
    db_size_text(check->n_bytes, size);
    db_size_text(check->free_bytes, free_size);
    db_size_text(check->log_bytes, log_size);
    (void)printf("%s: schema %" PRId64 ", %s, of them %s free; log %s\n", input->arguments[0],
                 check->version, size, free_size, log_size);
    db_print_tables(check);
    unsigned n =
        check->n_findings < STORE_FILE_MAX_FINDINGS ? check->n_findings : STORE_FILE_MAX_FINDINGS;
    for (unsigned i = 0; i < n; i++) {
        (void)printf("%s\n", check->findings[i]);
    }
    if (check->n_findings > n) {
        (void)printf("and %u findings more\n", check->n_findings - n);
    }
    (void)printf(check->n_findings == 0 ? "whole\n" : "damaged\n");
    int exit_status = check->n_findings == 0 ? DB_OK : DB_FAILED;
    free(check);
    return exit_status;
}

/* --- copies -------------------------------------------------------------------------------------
 */

/* A line per tenth; on a terminal it overwrites itself. */
static void db_progress(void *context, uint64_t done, uint64_t total) {
    int *tenth = context;
    int now = total > 0 ? (int)(done * 10 / total) : 0;
    if (now != *tenth) {
        *tenth = now;
        (void)fprintf(stderr, "%sbackup: %d %%%s", isatty(STDERR_FILENO) ? "\r" : "", now * 10,
                      isatty(STDERR_FILENO) && now < 10 ? "" : "\n");
    }
}

static int db_backup(const struct db_input *input) {
    struct deft_error error = {0};
    int tenth = 0;
    return db_done(
        store_file_backup(input->arguments[0], input->arguments[1], db_progress, &tenth, &error),
        &error);
}

static int db_compact(const struct db_input *input) {
    struct deft_error error = {0};
    char before[24];
    char after[24];
    int64_t before_bytes = 0;
    int64_t after_bytes = 0;
    enum deft_status status =
        store_file_compact(input->arguments[0], &before_bytes, &after_bytes, &error);
    if (status == DEFT_OK) {
        db_size_text(before_bytes, before);
        db_size_text(after_bytes, after);
        (void)printf("%s: %s, before %s\n", input->arguments[0], after, before);
    }
    return db_done(status, &error);
}

/* --- repair -------------------------------------------------------------------------------------
 */

static void db_print_saved(const struct store_file_saved *table) {
    (void)printf("%-14s %12" PRIu64, table->name, table->n_rows);
    if (table->n_bad_pages > 0) {
        (void)printf("  %" PRIu32 " of %" PRIu32 " pages cannot be read", table->n_bad_pages,
                     table->n_pages);
    }
    if (table->n_bad_rows > 0) {
        (void)printf("  %" PRIu64 " rows cannot be read", table->n_bad_rows);
    }
    if (table->n_stray > 0) {
        (void)printf("  %" PRIu64 " found on pages that nothing led to", table->n_stray);
    }
    (void)printf("\n");
}

static int db_repair(const struct db_input *input) {
    struct deft_error error = {0};
    struct store_file_repair *report = calloc(1, sizeof(*report));
    if (report == NULL) {
        return db_no_memory();
    }
    enum deft_status status =
        store_file_repair(input->arguments[0], input->arguments[1], report, &error);
    if (status == DEFT_OK) {
        (void)printf("%-14s %12s\n", "table", "rows saved");
        for (unsigned i = 0; i < report->n_tables; i++) {
            db_print_saved(&report->tables[i]);
        }
        if (report->n_unknown_pages > 0) {
            (void)printf("%" PRIu32 " pages have rows of which nothing tells whose they are\n",
                         report->n_unknown_pages);
        }
        if (report->n_made_up > 0) {
            (void)printf("%" PRIu64 " rows that others refer to were lost: they have stand-ins, "
                         "jobs under the name 'recovered'\n",
                         report->n_made_up);
        }
    }
    free(report);
    return db_done(status, &error);
}

/* --- jobs ---------------------------------------------------------------------------------------
 */

static int db_export(const struct db_input *input) {
    struct deft_error error = {0};
    return db_done(
        store_file_export(input->arguments[0], input->arguments[1], input->arguments[2], &error),
        &error);
}

static int db_import(const struct db_input *input) {
    struct deft_error error = {0};
    char job[WIRE_ID_BYTES] = "";
    enum deft_status status =
        store_file_import(input->arguments[0], input->arguments[1], input->as, job, &error);
    if (status == DEFT_OK) {
        (void)printf("%s\n", job);
    }
    return db_done(status, &error);
}

/* As the route of the API writes it. */
static void db_quoted(const char *text, char *out, size_t capacity_bytes) {
    struct json_out json = {0};
    char *quoted = NULL;
    json_out_begin_object(&json, NULL);
    json_out_text(&json, "keep", text);
    json_out_end_object(&json);
    if (json_out_finish(&json, &quoted, NULL) == DEFT_OK) {
        (void)snprintf(out, capacity_bytes, "%s", quoted);
    }
    free(quoted);
}

/* Beside a controller, which sees it with its next round of upkeep. */
static int db_keep(const struct db_input *input) {
    struct deft_error error = {0};
    struct store *store = NULL;
    struct store_keep_job write;
    char who[STORE_TOKEN_NAME_BYTES];
    char after[256] = "";
    struct store_audit audit = {.who = who,
                                .source = "deft-controller db",
                                .action = "job.keep",
                                .subject = input->arguments[1],
                                .before = "",
                                .after = after,
                                .reason = "",
                                .now_ns = clock_wall_ns()};
    store_keep_job_init(&write);
    write.job = input->arguments[1];
    write.audit = &audit;
    beside_who(who);
    db_quoted(input->arguments[2], after, sizeof(after));
    enum deft_status status = DEFT_OK;
    if (strcmp(input->arguments[2], "default") != 0) {
        status = keep_options_parse("WHAT=AGE", input->arguments[2], &write.keep, &error);
    }
    if (status == DEFT_OK) {
        status = store_file_expect(input->arguments[0], &error);
    }
    if (status == DEFT_OK) {
        status = beside_open(input->arguments[0], &store, &error);
    }
    if (status == DEFT_OK) {
        status = store_run(store, &write.write, &error);
    }
    store_close(store);
    return db_done(status, &error);
}

/* --- command line -------------------------------------------------------------------------------
 */

static const struct db_verb {
    const char *name;
    unsigned n_arguments;
    const char *arguments;
    int (*run)(const struct db_input *input);
} db_verbs[] = {
    {"check", 1, "FILE", db_check},
    {"backup", 2, "FILE TO", db_backup},
    {"compact", 1, "FILE", db_compact},
    {"repair", 2, "FILE TO", db_repair},
    {"export", 3, "FILE JOB TO", db_export},
    {"import", 2, "FILE FROM", db_import},
    {"keep", 3, "FILE JOB WHAT=AGE|default", db_keep},
};

static const struct db_verb *db_find(const char *name) {
    for (size_t i = 0; i < sizeof(db_verbs) / sizeof(db_verbs[0]); i++) {
        if (strcmp(db_verbs[i].name, name) == 0) {
            return &db_verbs[i];
        }
    }
    return NULL;
}

static void db_check_usage(struct argp_state *state, const struct db_input *input) {
    const struct db_verb *verb = input->verb != NULL ? db_find(input->verb) : NULL;
    if (verb == NULL) {
        argp_error(state, "check, backup, compact, repair, export, import or keep was expected");
    } else if (input->n_arguments != verb->n_arguments) {
        argp_error(state, "expected is: %s %s", verb->name, verb->arguments);
    } else if (input->as != NULL && strcmp(verb->name, "import") != 0) {
        argp_error(state, "--as belongs to import");
    }
}

static error_t db_parse(int key, char *argument, struct argp_state *state) {
    struct db_input *input = state->input;
    switch (key) {
    case KEY_AS:
        input->as = argument;
        return 0;
    case ARGP_KEY_ARG:
        if (input->verb == NULL) {
            input->verb = argument;
        } else if (input->n_arguments < DB_MAX_ARGUMENTS) {
            input->arguments[input->n_arguments++] = argument;
        } else {
            argp_error(state, "'%s' was not expected", argument);
        }
        return 0;
    case ARGP_KEY_END:
        db_check_usage(state, input);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int db_command_main(int argc, char **argv) {
    static const struct argp_option options[] = {
        {"as", KEY_AS, "JOB", 0, "Of import: under this name", 0}, {0}};
    static const struct argp argp = {
        .options = options,
        .parser = db_parse,
        .args_doc = "check FILE\nbackup FILE TO\ncompact FILE\nrepair FILE TO\n"
                    "export FILE JOB TO\nimport FILE FROM\nkeep FILE JOB WHAT=AGE",
        .doc =
            "The controller's database as a file. check looks through it, backup copies it, both "
            "beside a controller. compact gives back what it does not use, while no controller "
            "is at work. repair makes a new one of all that can be read of a damaged one. export "
            "writes one job as lines of JSON, compressed if TO ends in .gz ('-': standard "
            "output), import takes it in, beside a controller up to 200,000 rows. keep says how "
            "long one job's history stays, as --keep of the controller does for all; default takes "
            "that back.\v"
            "Nothing is overwritten. Exit status: 0 done, of check: the database is whole; 1 it "
            "is not, or it could not be done; 2 a wrong command line."};
    struct db_input input = {0};
    char name[] = "deft-controller db";
    argv[0] = name;
    (void)umask(0077);
    (void)argp_parse(&argp, argc, argv, 0, NULL, &input);
    return db_find(input.verb)->run(&input);
}
