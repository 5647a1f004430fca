#include "keep_options.h"

#include <stddef.h>
#include <string.h>

#define KEEP_NS_PER_S  INT64_C(1000000000)
#define KEEP_HOUR_NS   (3600 * KEEP_NS_PER_S)
#define KEEP_DAY_NS    (24 * KEEP_HOUR_NS)
#define KEEP_MAX_S     INT64_C(3153600000) /* a hundred years */
#define KEEP_MAX_BYTES (INT64_C(1) << 50)

/* What may be kept, and the least of it. A job stays in memory for an hour after its last report.
 */
static const struct {
    const char *word;
    size_t offset;
    int is_age;
    int64_t least;
} keep_words[] = {
    {"raw", offsetof(struct store_keep, raw_ns), 1, KEEP_HOUR_NS},
    {"iterations", offsetof(struct store_keep, raw_iterations), 0, 1},
    {"minutes", offsetof(struct store_keep, minutes_ns), 1, KEEP_HOUR_NS},
    {"hours", offsetof(struct store_keep, hours_ns), 1, KEEP_DAY_NS},
    {"logs", offsetof(struct store_keep, logs_ns), 1, KEEP_HOUR_NS},
    {"jobs", offsetof(struct store_keep, jobs_ns), 1, KEEP_DAY_NS},
};

/* Digits and one letter of `units`, whose factors are in `factors`; -1: something else. */
static int64_t keep_scaled(const char *text, size_t n_bytes, const char *units,
                           const int64_t *factors, int64_t most) {
    int64_t number = 0;
    size_t at = 0;
    for (; at < n_bytes && text[at] >= '0' && text[at] <= '9'; at++) {
        number = number * 10 + (text[at] - '0');
        if (number > most) {
            return -1;
        }
    }
    const char *unit = at > 0 && at + 1 == n_bytes ? strchr(units, text[at]) : NULL;
    if (at > 0 && at == n_bytes) {
        return number;
    }
    if (unit == NULL || *unit == '\0' || number > most / factors[unit - units]) {
        return -1;
    }
    return number * factors[unit - units];
}

static int64_t keep_age(const char *text, size_t n_bytes) {
    static const int64_t factors[] = {1, 60, 3600, 86400, 604800, 31536000};
    if (n_bytes == 0 || (text[n_bytes - 1] >= '0' && text[n_bytes - 1] <= '9')) {
        return -1; /* seconds are not what a bare number would be taken for */
    }
    int64_t seconds = keep_scaled(text, n_bytes, "smhdwy", factors, KEEP_MAX_S);
    return seconds < 0 ? -1 : seconds * KEEP_NS_PER_S;
}

static int keep_one(const char *text, size_t n_bytes, struct store_keep *keep) {
    const char *equals = memchr(text, '=', n_bytes);
    size_t n_word = equals != NULL ? (size_t)(equals - text) : 0;
    for (size_t i = 0; i < sizeof(keep_words) / sizeof(keep_words[0]) && n_word > 0; i++) {
        if (strlen(keep_words[i].word) != n_word || memcmp(keep_words[i].word, text, n_word) != 0) {
            continue;
        }
        const char *value = equals + 1;
        size_t n_value = n_bytes - n_word - 1;
        int is_for_ever = n_value == 7 && memcmp(value, "forever", 7) == 0;
        int64_t number = is_for_ever            ? STORE_FOR_EVER
                         : keep_words[i].is_age ? keep_age(value, n_value)
                                                : keep_scaled(value, n_value, "", NULL, INT32_MAX);
        if (number < keep_words[i].least) {
            return 0;
        }
        memcpy((char *)keep + keep_words[i].offset, &number, sizeof(number));
        return 1;
    }
    return 0;
}

enum deft_status keep_options_parse(const char *name, const char *text, struct store_keep *keep,
                                    struct deft_error *error) {
    struct store_keep wished = *keep;
    for (const char *at = text;; at++) {
        size_t n_bytes = strcspn(at, ",");
        if (!keep_one(at, n_bytes, &wished)) {
            return deft_fail(
                error, DEFT_INVALID, 0,
                "%s is '%.64s', expected raw, minutes, hours, logs or jobs with an "
                "age such as raw=12h, jobs=2y or hours=forever (at least 1h; hours and "
                "jobs 1d), or iterations with a number, as iterations=200000",
                name, text);
        }
        at += n_bytes;
        if (*at == '\0') {
            break;
        }
    }
    *keep = wished;
    return DEFT_OK;
}

static enum deft_status keep_take_ages(const struct setting *row, const char *name,
                                       const char *text, void *target, struct deft_error *error) {
    struct store_options defaults;
    struct store_options *options = target;
    (void)row;
    store_defaults(&defaults);
    enum deft_status status = keep_options_parse(name, text, &defaults.keep, error);
    if (status == DEFT_OK) {
        options->keep = defaults.keep;
    }
    return status;
}

static enum deft_status keep_take_bytes(const struct setting *row, const char *name,
                                        const char *text, void *target, struct deft_error *error) {
    static const int64_t factors[] = {INT64_C(1) << 10, INT64_C(1) << 20, INT64_C(1) << 30,
                                      INT64_C(1) << 40};
    struct store_options *options = target;
    int64_t number = keep_scaled(text, strlen(text), "KMGT", factors, KEEP_MAX_BYTES);
    (void)row;
    if (number != 0 && number < STORE_MIN_MAX_BYTES) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "%s is '%.64s', expected a number of bytes from 16M on, with K, M, G or T "
                         "if you like, or 0",
                         name, text);
    }
    options->max_bytes = number;
    return DEFT_OK;
}

const struct setting keep_options_rows[] = {
    {.name = "keep",
     .argument = "WHAT=AGE",
     .doc = "How long history stays; several with commas, and forever is an age",
     .value = "raw=7d,iterations=200000,minutes=90d,hours=2y,logs=30d,jobs=1y",
     .flags = SETTING_RELOADS | SETTING_LIST,
     .take = keep_take_ages},
    {.name = "max-db-bytes",
     .argument = "N",
     .doc = "Size of the database, beyond which the oldest history goes; 0: no bound",
     .value = "16G",
     .flags = SETTING_RELOADS,
     .take = keep_take_bytes},
    {.name = NULL},
};
