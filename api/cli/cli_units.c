#include "cli_units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <dsched/limits.h>

/* Beyond this a double no longer holds every whole number. */
#define CLI_UNITS_MAX_RATE (INT64_C(1) << 53)

struct cli_unit {
    const char *name;
    double factor;
};

/* The number in front of `text` and where it ends; 0 when there is none. strtod alone would take
 * exponents, hexadecimal digits, inf and nan as well. */
static int cli_units_number(const char *text, double *out, const char **out_rest) {
    static const char digits[] = "0123456789";
    size_t n_whole = strspn(text, digits);
    size_t n = n_whole;
    size_t n_fraction = 0;
    if (text[n] == '.') {
        n_fraction = strspn(text + n + 1, digits);
        n += 1 + n_fraction;
    }
    /* Longer numbers than this are no figures of people. */
    char number[48];
    if (n_whole + n_fraction == 0 || n >= sizeof(number)) {
        return 0;
    }
    memcpy(number, text, n);
    number[n] = '\0';
    *out = strtod(number, NULL);
    *out_rest = text + n;
    return 1;
}

/* 0 when it is no number in [least, most]. */
static int cli_units_round(double value, int64_t least, int64_t most, int64_t *out) {
    double rounded = round(value);
    if (!(rounded >= (double)least && rounded <= (double)most)) {
        return 0;
    }
    *out = (int64_t)rounded;
    return 1;
}

static const struct cli_unit *cli_units_find(const struct cli_unit *units, const char *name) {
    for (; units->name != NULL; units++) {
        if (strcmp(units->name, name) == 0) {
            return units;
        }
    }
    return NULL;
}

enum deft_status cli_units_decimal(const char *name, const char *text, double unit, int64_t least,
                                   int64_t most, int64_t *out, struct deft_error *error) {
    double value = 0.0;
    const char *rest = NULL;
    if (!cli_units_number(text, &value, &rest) || *rest != '\0' ||
        !cli_units_round(value * unit, least, most, out)) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "%s is '%.60s', expected a number from %.15g to %.15g", name, text,
                         (double)least / unit, (double)most / unit);
    }
    return DEFT_OK;
}

enum deft_status cli_units_duration(const char *name, const char *text, int64_t *out_ns,
                                    struct deft_error *error) {
    static const struct cli_unit units[] = {
        {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {NULL, 0}};
    double value = 0.0;
    const char *rest = "";
    const struct cli_unit *unit = NULL;
    int is_number = cli_units_number(text, &value, &rest);
    if (is_number) {
        unit = cli_units_find(units, value == 0.0 && *rest == '\0' ? "ns" : rest);
    }
    if (unit == NULL || !cli_units_round(value * unit->factor, 0, DSCHED_MAX_TIME_NS, out_ns)) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "%s is '%.60s', expected a duration such as 60us (ns, us, ms or s) of at "
                         "most %lld s",
                         name, text, (long long)(DSCHED_MAX_TIME_NS / 1000000000));
    }
    return DEFT_OK;
}

enum deft_status cli_units_rate(const char *name, const char *text, int64_t *out_bytes_per_s,
                                struct deft_error *error) {
    static const struct cli_unit units[] = {{"B/s", 1},
                                            {"kB/s", 1e3},
                                            {"MB/s", 1e6},
                                            {"GB/s", 1e9},
                                            {"TB/s", 1e12},
                                            {"bit/s", 1 / 8.0},
                                            {"kbit/s", 1e3 / 8.0},
                                            {"Mbit/s", 1e6 / 8.0},
                                            {"Gbit/s", 1e9 / 8.0},
                                            {"Tbit/s", 1e12 / 8.0},
                                            {NULL, 0}};
    double value = 0.0;
    const char *rest = "";
    const struct cli_unit *unit = NULL;
    if (cli_units_number(text, &value, &rest)) {
        unit = cli_units_find(units, rest);
    }
    if (unit == NULL ||
        !cli_units_round(value * unit->factor, 1, CLI_UNITS_MAX_RATE, out_bytes_per_s)) {
        return deft_fail(
            error, DEFT_INVALID, 0,
            "%s is '%.60s', expected a rate such as 1.2GB/s or 10Gbit/s (k, M, G, T) of "
            "at least 1B/s",
            name, text);
    }
    return DEFT_OK;
}
