/* The committed pages of a write-ahead log. Only for store_salvage.c.
 *
 * Format: sqlite.org/walformat.html. Frames count up to the first whose checksum is wrong. */
#ifndef STORE_SALVAGE_LOG_H
#define STORE_SALVAGE_LOG_H

#include <stdint.h>

#include <deft/status.h>

struct store_salvage_log;
/* The log beside the database at `path`; `*out` stays NULL when there is none of use. */
DEFT_NODISCARD enum deft_status store_salvage_log_open(const char *path, uint32_t page_bytes,
                                                       struct store_salvage_log **out,
                                                       struct deft_error *error);
void store_salvage_log_close(struct store_salvage_log *log); /* takes NULL */

/* Pages of the database as of the last commit; 0 without a log. All take NULL. */
uint32_t store_salvage_log_n_pages(const struct store_salvage_log *log);
/* 1 when the log has the page. */
int store_salvage_log_read(const struct store_salvage_log *log, uint32_t page, uint8_t *out);

#endif
