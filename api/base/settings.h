/* The settings of a program, from one table of rows: options of the command line and their --help,
 * keys of a file, variables of the environment, and what is told of them.
 *
 * Of a default, the file, the environment and the command line a later one wins, whole: nothing is
 * mixed. What is given is checked wherever it is given, also where another one wins.
 *
 * A file has lines of KEY = VALUE. Blanks around both do not count; a line that begins with # is a
 * comment, a # behind a value is part of it. The key is the option's name without its dashes, and
 * the variable of max-rate is PREFIX_MAX_RATE. Empty variables count as absent. */
#ifndef SETTINGS_H
#define SETTINGS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <deft/status.h>

#define SETTINGS_MAX_ROWS    64u
#define SETTINGS_FILE_BYTES  65536u /* a hundred lines of comment per key */
#define SETTINGS_WHERE_BYTES 512u

enum setting_flag {
    SETTING_RELOADS = 1,   /* a file that is read again may change it */
    SETTING_SECRET = 2,    /* never shown */
    SETTING_LIST = 4,      /* several values, with commas; the option may be repeated instead */
    SETTING_ONLY_FLAG = 8, /* has no meaning but on the command line */
};

struct setting;
/* Checks `text` and stores it in `target`, which may point to it from then on. `name` is what the
 * sentence calls it. May be called again, and then replaces what was stored. */
typedef enum deft_status (*setting_take_fn)(const struct setting *row, const char *name,
                                            const char *text, void *target,
                                            struct deft_error *error);

struct setting {
    const char *name;      /* lower-case letters, digits and dashes */
    const char *argument;  /* what --help calls the value; NULL: a switch, elsewhere yes or no */
    const char *doc;       /* one sentence without its full stop, and without the default */
    const char *value;     /* the default; NULL: none */
    const char *otherwise; /* what holds without a value, if that is worth a word */
    int letter;            /* its short option; 0: none */
    unsigned flags;        /* of enum setting_flag */
    setting_take_fn take;
    size_t offset;        /* of what is stored, in the target */
    uint64_t least, most; /* of numbers */
};

/* Rows that share a target. */
struct settings_group {
    const struct setting *rows; /* the last one has no name */
    size_t offset;              /* of their target in the program's */
};

struct settings_program {
    const char *name;   /* "deft-controller" */
    const char *prefix; /* "DEFT_CONTROLLER_" */
    const char *doc;    /* for --help: before and, behind \v, after the options */
    const struct settings_group *groups;
    size_t n_groups;
};

size_t settings_n_rows(const struct settings_program *program);
const struct setting *settings_row(const struct settings_program *program, size_t i);

/* --- what rows store: a const char *, uint16_t, uint32_t, uint64_t, int, double (0 to 1), int ----
 */

enum deft_status settings_take_text(const struct setting *row, const char *name, const char *text,
                                    void *target, struct deft_error *error);
enum deft_status settings_take_u16(const struct setting *row, const char *name, const char *text,
                                   void *target, struct deft_error *error);
enum deft_status settings_take_u32(const struct setting *row, const char *name, const char *text,
                                   void *target, struct deft_error *error);
enum deft_status settings_take_u64(const struct setting *row, const char *name, const char *text,
                                   void *target, struct deft_error *error);
enum deft_status settings_take_int(const struct setting *row, const char *name, const char *text,
                                   void *target, struct deft_error *error);
enum deft_status settings_take_fraction(const struct setting *row, const char *name,
                                        const char *text, void *target, struct deft_error *error);
/* 1 for yes, 0 for no. */
enum deft_status settings_take_switch(const struct setting *row, const char *name, const char *text,
                                      void *target, struct deft_error *error);

/* --- reading ---------------------------------------------------------------------------------- */

struct settings;

/* What else the command line may ask for. */
enum settings_task {
    SETTINGS_RUN,
    SETTINGS_CHECK, /* --check-config: only say whether all is right */
    SETTINGS_PRINT, /* --print-config: only print what would hold */
};

/* Defaults alone. DEFT_LIMIT: more rows than SETTINGS_MAX_ROWS. */
DEFT_NODISCARD enum deft_status settings_open(const struct settings_program *program,
                                              struct settings **out, struct deft_error *error);
/* Takes NULL. */
void settings_close(struct settings *settings);

/* Everything: command line, environment, and the file that --config names. Ends the process for
 * --help and --version, and with status 2 for an option that is none. */
DEFT_NODISCARD enum deft_status settings_read(const struct settings_program *program, int argc,
                                              char **argv, char *const *environment,
                                              struct settings **out, struct deft_error *error);
/* The same with the file as it is now. DEFT_STATE: there is no file. */
DEFT_NODISCARD enum deft_status settings_read_again(const struct settings *settings,
                                                    struct settings **out,
                                                    struct deft_error *error);

/* Its parts. Variables with the program's prefix that are none of its settings are refused, apart
 * from those that Kubernetes makes for a service of that name. */
void settings_read_flags(struct settings *settings, int argc, char **argv);
DEFT_NODISCARD enum deft_status settings_read_environment(struct settings *settings,
                                                          char *const *environment,
                                                          struct deft_error *error);
/* `name` is what sentences call the text: "NAME:LINE: ...". */
DEFT_NODISCARD enum deft_status settings_read_text(struct settings *settings, const char *name,
                                                   const char *text, size_t n_bytes,
                                                   struct deft_error *error);

/* Stores everything in `target`, the program's; what has no value is left alone. `target` points
 * into `settings` from then on. May have stored a part when it fails. */
DEFT_NODISCARD enum deft_status settings_apply(const struct settings *settings, void *target,
                                               struct deft_error *error);

/* --- looking ---------------------------------------------------------------------------------- */

enum settings_source {
    SETTINGS_DEFAULT,
    SETTINGS_FILE,
    SETTINGS_ENVIRONMENT,
    SETTINGS_FLAG,
    SETTINGS_N_SOURCES,
};
/* "default", "file", "environment" or "flag". */
const char *settings_source_name(enum settings_source source);

struct settings_value {
    const char *text; /* NULL: none */
    enum settings_source source;
    char
        where[SETTINGS_WHERE_BYTES]; /* "FILE:3", "DEFT_CONTROLLER_PORT", "--port"; "" by default */
};
/* What holds for row `i`. */
void settings_value(const struct settings *settings, size_t i, struct settings_value *out);
const struct settings_program *settings_program(const struct settings *settings);
enum settings_task settings_task(const struct settings *settings);
const char *settings_file(const struct settings *settings); /* NULL: none */

/* As a file that can be read again; secrets are left out. DEFT_INVALID: a value that no file can
 * have, since it begins or ends with a blank or has more than one line. Whether all of it arrived
 * is for whoever owns `out` to see. */
DEFT_NODISCARD enum deft_status settings_print(const struct settings *settings, FILE *out,
                                               struct deft_error *error);

#endif
