#include "top_screen.h"

#include <curses.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TOP_SCREEN_HEAD 3   /* lines above the first job */
#define TOP_SCREEN_FOOT 2   /* and below the last */
#define TOP_SLICE_MS    100 /* a signal between the look at `stop` and the wait is late by this */

enum deft_status top_screen_open(struct deft_error *error) {
    const char *term = getenv("TERM");
    SCREEN *screen = newterm(NULL, stdout, stdin);
    if (screen == NULL) {
        return deft_fail(error, DEFT_UNSUPPORTED, 0,
                         "TERM is '%.40s', which is no terminal that is known here; --once does "
                         "without",
                         term != NULL ? term : "");
    }
    (void)set_term(screen);
    (void)cbreak();
    (void)noecho();
    (void)keypad(stdscr, TRUE);
    (void)nodelay(stdscr, TRUE);
    (void)curs_set(0);
    return DEFT_OK;
}

void top_screen_close(void) {
    if (stdscr != NULL && !isendwin()) {
        (void)endwin();
    }
}

static void top_put(int line, const char *text, attr_t attributes) {
    char fitted[TOP_TEXT_BYTES];
    int columns = getmaxx(stdscr);
    if (line < 0 || line >= getmaxy(stdscr) || columns <= 0) {
        return;
    }
    top_text_fit(text, (unsigned)columns, fitted);
    (void)attrset((int)attributes);
    (void)mvaddstr(line, 0, fitted);
    (void)attrset(A_NORMAL);
}

static int top_page(void) {
    int n = getmaxy(stdscr) - TOP_SCREEN_HEAD - TOP_SCREEN_FOOT;
    return n > 1 ? n : 1;
}

/* The selected row exists and is on the screen. */
static void top_settle(struct top_screen *screen) {
    uint32_t n_jobs = screen->jobs->n_jobs;
    uint32_t page = (uint32_t)top_page();
    uint32_t last_first = n_jobs > page ? n_jobs - page : 0;
    screen->selected = screen->selected < n_jobs ? screen->selected : n_jobs > 0 ? n_jobs - 1 : 0;
    screen->first = screen->first < last_first ? screen->first : last_first;
    if (screen->selected < screen->first) {
        screen->first = screen->selected;
    } else if (screen->selected >= screen->first + page) {
        screen->first = screen->selected - page + 1;
    }
}

void top_screen_draw(struct top_screen *screen) {
    char text[TOP_TEXT_BYTES];
    const struct wire_jobs *jobs = screen->jobs;
    unsigned columns = (unsigned)getmaxx(stdscr);
    int lines = getmaxy(stdscr);
    top_settle(screen);
    (void)erase();
    top_rows_summary(jobs, columns, text);
    top_put(0, text, A_BOLD);
    (void)snprintf(text, sizeof(text), "%.400s%.600s",
                   screen->trouble[0] != '\0' ? "" : screen->url, screen->trouble);
    top_put(1, text, screen->trouble[0] != '\0' ? A_BOLD : A_DIM);
    top_rows_heading(columns, text);
    top_put(2, text, A_REVERSE);
    for (int i = 0; i < top_page() && screen->first + (uint32_t)i < jobs->n_jobs; i++) {
        uint32_t row = screen->first + (uint32_t)i;
        top_rows_line(&jobs->jobs[row], columns, text);
        top_put(TOP_SCREEN_HEAD + i, text, row == screen->selected ? A_STANDOUT : A_NORMAL);
    }
    if (lines > TOP_SCREEN_HEAD + TOP_SCREEN_FOOT) {
        top_put(lines - 2, jobs->n_jobs > 0 ? jobs->jobs[screen->selected].status : "", A_NORMAL);
        (void)snprintf(text, sizeof(text), "q quit   s sort (now by %s)   arrows choose a job",
                       top_order_names[screen->order]);
        top_put(lines - 1, text, A_DIM);
    }
    (void)refresh();
}

static void top_move(struct top_screen *screen, int64_t by) {
    int64_t row = (int64_t)screen->selected + by;
    screen->selected = row > 0 ? (uint32_t)row : 0;
}

enum top_key top_screen_wait(struct top_screen *screen, int timeout_ms,
                             const volatile sig_atomic_t *stop) {
    int slice = timeout_ms < TOP_SLICE_MS ? timeout_ms : TOP_SLICE_MS;
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    if (*stop) {
        return TOP_QUIT;
    }
    int n = poll(&input, 1, slice > 0 ? slice : 0);
    if (n > 0 && (input.revents & POLLIN) == 0) {
        return TOP_QUIT; /* the terminal is gone, nobody looks */
    }
    switch (getch()) {
    case 'q':
        return TOP_QUIT;
    case 's':
        return TOP_SORT;
    case KEY_UP:
        top_move(screen, -1);
        return TOP_MOVED;
    case KEY_DOWN:
        top_move(screen, 1);
        return TOP_MOVED;
    case KEY_PPAGE:
        top_move(screen, -top_page());
        return TOP_MOVED;
    case KEY_NPAGE:
        top_move(screen, top_page());
        return TOP_MOVED;
    case KEY_RESIZE:
        (void)clear();
        return TOP_MOVED;
    default:
        return *stop ? TOP_QUIT : TOP_NONE;
    }
}
