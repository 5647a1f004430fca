/* The terminal of `deft top`. The only file that knows ncurses. */
#ifndef TOP_SCREEN_H
#define TOP_SCREEN_H

#include <signal.h>
#include <stdint.h>

#include "top_rows.h"

/* What is on the screen; the caller owns it. */
struct top_screen {
    const struct wire_jobs *jobs;
    enum top_order order;
    const char *url;
    const char *trouble; /* "": the newest answer is on the screen */
    uint32_t selected;   /* row, kept below n_jobs */
    uint32_t first;      /* row at the top */
};

enum top_key { TOP_NONE = 0, TOP_QUIT, TOP_SORT, TOP_MOVED };

/* Takes the terminal. DEFT_UNSUPPORTED: TERM names none that is known. Every end of the process
 * must come by top_screen_close, which gives it back and may be called again. */
DEFT_NODISCARD enum deft_status top_screen_open(struct deft_error *error);
void top_screen_close(void);

void top_screen_draw(struct top_screen *screen);
/* Waits for a key, a new size or `*stop` for at most `timeout_ms`. */
enum top_key top_screen_wait(struct top_screen *screen, int timeout_ms,
                             const volatile sig_atomic_t *stop);

#endif
