/* How much history the controller keeps: options and their words. */
#ifndef KEEP_OPTIONS_H
#define KEEP_OPTIONS_H

#include <deft/status.h>

#include "base/settings.h"
#include "store/store.h"

/* Of a struct store_options. */
extern const struct setting keep_options_rows[];

/* "raw=7d,iterations=200000,minutes=90d,hours=2y,logs=30d,jobs=1y": ages in s, m, h, d, w or y, or
 * forever. What is not named stays as it is. `name` is what the sentence calls the text. */
DEFT_NODISCARD enum deft_status keep_options_parse(const char *name, const char *text,
                                                   struct store_keep *keep,
                                                   struct deft_error *error);

#endif
