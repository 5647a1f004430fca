/* Ids and times as the API writes them. */
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/parse.h"

void store_time_text(int64_t wall_ns, char out[32]) {
    time_t seconds = (time_t)(wall_ns / 1000000000);
    struct tm utc = {0};
    char stamp[24];
    (void)gmtime_r(&seconds, &utc);
    (void)strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc);
    (void)snprintf(out, 32, "%s.%03dZ", stamp, (int)(wall_ns / 1000000 % 1000));
}

enum deft_status store_time_parse(const char *text, int64_t *out_wall_ns) {
    struct tm utc = {0};
    int64_t fraction_ns = 0;
    int64_t digit_ns = 100000000;
    const char *at = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);
    if (at != NULL && *at == '.' && at[1] >= '0' && at[1] <= '9') {
        for (at++; *at >= '0' && *at <= '9'; at++, digit_ns /= 10) {
            fraction_ns += (*at - '0') * digit_ns;
        }
    }
    if (at == NULL || strcmp(at, "Z") != 0 || utc.tm_year < 70 || utc.tm_year > 300) {
        return DEFT_INVALID;
    }
    *out_wall_ns = (int64_t)timegm(&utc) * 1000000000 + fraction_ns;
    return DEFT_OK;
}

void store_id_text(int64_t incarnation, char out[STORE_ID_BYTES]) {
    (void)snprintf(out, STORE_ID_BYTES, "i%" PRId64, incarnation);
}

void store_plan_id_text(int64_t incarnation, uint64_t seq, char out[STORE_ID_BYTES]) {
    (void)snprintf(out, STORE_ID_BYTES, "i%" PRId64 ".%" PRIu64, incarnation, seq);
}

enum deft_status store_id_parse(const char *text, int64_t *out) {
    uint64_t number = 0;
    if (text[0] != 'i' || parse_u64("id", text + 1, 1, INT64_MAX, &number, NULL) != DEFT_OK) {
        return DEFT_NOT_FOUND;
    }
    *out = (int64_t)number;
    return DEFT_OK;
}

enum deft_status store_plan_id_parse(const char *text, int64_t *out_incarnation,
                                     uint64_t *out_seq) {
    char incarnation[STORE_ID_BYTES];
    uint64_t seq = 0;
    const char *dot = strchr(text, '.');
    size_t length = dot != NULL ? (size_t)(dot - text) : 0;
    if (length == 0 || length >= sizeof(incarnation) ||
        parse_u64("id", dot + 1, 1, INT64_MAX, &seq, NULL) != DEFT_OK) {
        return DEFT_NOT_FOUND;
    }
    memcpy(incarnation, text, length);
    incarnation[length] = '\0';
    enum deft_status status = store_id_parse(incarnation, out_incarnation);
    if (status == DEFT_OK) {
        *out_seq = seq;
    }
    return status;
}
