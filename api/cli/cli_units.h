/* Figures with units, as people write them on a command line: 60us, 1.2GB/s, 10Gbit/s, 0.5. */
#ifndef CLI_UNITS_H
#define CLI_UNITS_H

#include <stdint.h>

#include <deft/status.h>

/* Decimal digits with at most one point; `name` is what the sentence calls it. Times `unit`,
 * rounded to a whole number in [least, most]: parts per million with 1e6. */
DEFT_NODISCARD enum deft_status cli_units_decimal(const char *name, const char *text, double unit,
                                                  int64_t least, int64_t most, int64_t *out,
                                                  struct deft_error *error);
/* "60us": ns, us, ms or s; 0 may stand alone. 0 to DSCHED_MAX_TIME_NS. */
DEFT_NODISCARD enum deft_status cli_units_duration(const char *name, const char *text,
                                                   int64_t *out_ns, struct deft_error *error);
/* "1.2GB/s", "10Gbit/s": B/s or bit/s with k, M, G or T, powers of ten. At least 1 byte per second.
 */
DEFT_NODISCARD enum deft_status cli_units_rate(const char *name, const char *text,
                                               int64_t *out_bytes_per_s, struct deft_error *error);

#endif
