/* Lines of `deft top`: exactly as wide as the screen, and nothing in them moves a cursor. */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "testing.h"
#include "top_rows.h"

/* A mark that turns the direction of writing; the compiler would warn of it in a literal. */
static const char turned[] = {(char)0xe2, (char)0x80, (char)0xae, 'a', 'b', '\0'};
static const char *const hostile[] = {
    turned,
    "\033[2J\033[H",
    "\033]0;title\a",
    "a\nb\rc\td\b\b\b",
    "\302\23331m", /* one byte longer, but the same as ESC [ */
    "e\xcc\x81\xcc\x81",
    "\xff\xfe\xc0\xaf",
    "\xe6\xbc\xa2\xe5\xad\x97",
    "\xf0\x9f\x98\x80 job",
    "\x7f\x01\x02",
    "\xe2\x80\xa8 line",
    "plain",
};
#define N_HOSTILE (sizeof(hostile) / sizeof(hostile[0]))

/* Columns of a text of printable letters; fails for any other. */
static unsigned columns_of(const char *text) {
    unsigned n = 0;
    mbstate_t state = {0};
    while (*text != '\0') {
        wchar_t letter = 0;
        size_t n_bytes = mbrtowc(&letter, text, strlen(text), &state);
        assert_true(n_bytes > 0 && n_bytes <= 4);
        int width = wcwidth(letter);
        assert_true(width > 0);
        n += (unsigned)width;
        text += n_bytes;
    }
    return n;
}

static void hostile_texts_are_letters_of_the_width_asked_for(void **state) {
    char out[TOP_TEXT_BYTES];
    (void)state;
    assert_non_null(setlocale(LC_CTYPE, "C.UTF-8"));
    for (size_t i = 0; i < N_HOSTILE; i++) {
        for (unsigned columns = 0; columns < 40; columns++) {
            top_text_fit(hostile[i], columns, out);
            assert_int_equal(columns_of(out), columns);
        }
    }
    top_text_fit("\x1b[1mx", 8, out);
    assert_string_equal(out, "?[1mx   ");
    top_text_fit("\xe6\xbc\xa2\xe5\xad\x97", 3, out); /* half of a wide letter is no letter */
    assert_string_equal(out, "\xe6\xbc\xa2 ");
    top_text_fit("x", TOP_TEXT_COLUMNS + 7, out);
    assert_int_equal(strlen(out), TOP_TEXT_COLUMNS);
}

static void without_a_locale_of_letters_only_ascii_is_shown(void **state) {
    char out[TOP_TEXT_BYTES];
    (void)state;
    assert_non_null(setlocale(LC_CTYPE, "C"));
    for (size_t i = 0; i < N_HOSTILE; i++) {
        top_text_fit(hostile[i], 20, out);
        assert_int_equal(strlen(out), 20);
        for (const char *c = out; *c != '\0'; c++) {
            assert_true(*c >= ' ' && *c <= '~');
        }
    }
}

static void a_line_is_as_wide_as_the_screen(void **state) {
    struct wire_job job = {.id = "\x1b[7m job", .phase = "\x1b[0m", .rule = "delayed"};
    char out[TOP_TEXT_BYTES];
    (void)state;
    assert_non_null(setlocale(LC_CTYPE, "C.UTF-8"));
    job.gain = (double)NAN;
    job.progress = 1e300; /* a controller may say anything */
    job.step_ns = INT64_MAX;
    job.n_ranks = UINT32_MAX;
    job.n_ranks_heard = UINT32_MAX;
    for (unsigned columns = 1; columns <= TOP_TEXT_COLUMNS; columns += 13) {
        top_rows_line(&job, columns, out);
        assert_int_equal(columns_of(out), columns);
        top_rows_heading(columns, out);
        assert_int_equal(columns_of(out), columns);
    }
}

static struct wire_jobs jobs_of(uint32_t n) {
    struct wire_jobs jobs = {.n_jobs = n, .jobs = calloc(n, sizeof(*jobs.jobs)), .total = n};
    assert_non_null(jobs.jobs);
    return jobs;
}

static void fill(struct wire_job *job, const char *id, const char *word, double gain, uint32_t n) {
    (void)snprintf(job->id, sizeof(job->id), "%s", id);
    (void)snprintf(job->phase, sizeof(job->phase), "%s", word);
    (void)snprintf(job->rule, sizeof(job->rule), "%s", word);
    job->gain = gain;
    job->n_ranks = n;
}

static void jobs_are_sorted_with_what_has_no_figure_last(void **state) {
    static const char *const by_gain[] = {"c", "a", "d", "b"};
    struct wire_jobs jobs = jobs_of(4);
    const struct wire_job *rows = jobs.jobs;
    (void)state;
    fill(&jobs.jobs[0], "b", "y", (double)NAN, 9);
    fill(&jobs.jobs[1], "d", "x", 1.0, 9);
    fill(&jobs.jobs[2], "a", "x", 1.0, 1);
    fill(&jobs.jobs[3], "c", "z", 2.0, 4);
    top_rows_sort(&jobs, TOP_GAIN);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(rows[i].id, by_gain[i]);
    }
    top_rows_sort(&jobs, TOP_RANKS);
    assert_string_equal(rows[0].id, "b");
    assert_string_equal(rows[3].id, "a");
    top_rows_sort(&jobs, TOP_PHASE);
    assert_string_equal(rows[0].id, "a");
    top_rows_sort(&jobs, TOP_JOB);
    assert_string_equal(rows[3].id, "d");
    wire_jobs_done(&jobs);
}

static void the_summary_counts_what_is_tuned(void **state) {
    struct wire_jobs jobs = jobs_of(3);
    char out[TOP_TEXT_BYTES];
    (void)state;
    fill(&jobs.jobs[0], "a", "delayed", 1.5, 1);
    fill(&jobs.jobs[1], "b", "exact", 1.0, 1);
    fill(&jobs.jobs[2], "c", "averaged", 2.5, 1);
    jobs.total = 1234;
    top_rows_summary(&jobs, 60, out);
    assert_non_null(strstr(out, "1234 jobs, 2 tuned, median gain 2.00x; only 3 are shown"));
    wire_jobs_done(&jobs);
    jobs = (struct wire_jobs){0};
    top_rows_summary(&jobs, 60, out);
    assert_non_null(strstr(out, "0 jobs, 0 tuned "));
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(hostile_texts_are_letters_of_the_width_asked_for),
    cmocka_unit_test(without_a_locale_of_letters_only_ascii_is_shown),
    cmocka_unit_test(a_line_is_as_wide_as_the_screen),
    cmocka_unit_test(jobs_are_sorted_with_what_has_no_figure_last),
    cmocka_unit_test(the_summary_counts_what_is_tuned),
};
TESTING_MAIN(cases)
