#include "import_progress.h"

#include <stdio.h>

#include "base/clock.h"
#include "cli_table.h"

#define IMPORT_PROGRESS_INTERVAL_NS INT64_C(100000000)
#define IMPORT_PROGRESS_CELLS       30

void import_progress_show(void *context, uint64_t done_bytes, uint64_t total_bytes) {
    struct import_progress *progress = context;
    char done[16];
    if (!progress->is_shown) {
        return;
    }
    int64_t now_ns = clock_monotonic_ns();
    if (progress->shown_ns != 0 && now_ns - progress->shown_ns < IMPORT_PROGRESS_INTERVAL_NS) {
        return;
    }
    progress->shown_ns = now_ns;
    cli_table_bytes(done_bytes, done);
    if (total_bytes == 0) {
        (void)fprintf(stderr, "\r\033[K%.40s: %s", progress->label, done);
        return;
    }
    double part = (double)done_bytes / (double)total_bytes;
    int cells = (int)(part * IMPORT_PROGRESS_CELLS);
    cells = cells > IMPORT_PROGRESS_CELLS ? IMPORT_PROGRESS_CELLS : cells;
    (void)fprintf(stderr, "\r\033[K%.40s: [%.*s%*s] %3.0f %% (%s)", progress->label, cells,
                  "##############################", IMPORT_PROGRESS_CELLS - cells, "", part * 100,
                  done);
}

void import_progress_end(struct import_progress *progress) {
    if (progress->shown_ns != 0) {
        (void)fprintf(stderr, "\r\033[K");
        progress->shown_ns = 0;
    }
}
