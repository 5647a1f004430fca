/* Server-sent events out of any chunks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/sse.h"
#include "testing.h"

struct seen {
    char text[4096];
    size_t n;
    unsigned n_events;
    unsigned stop_after; /* 0: never */
};

static int note(void *context, const char *event, const char *id, const char *data) {
    struct seen *seen = context;
    int n =
        snprintf(seen->text + seen->n, sizeof(seen->text) - seen->n, "<%s|%s|%s>", event, id, data);
    assert_true(n > 0 && (size_t)n < sizeof(seen->text) - seen->n);
    seen->n += (size_t)n;
    seen->n_events++;
    return seen->n_events == seen->stop_after;
}

static const char stream[] = ": a comment\n"
                             "\n"
                             "event: plan\r\nid: 1\r\ndata: {\"a\":1}\r\n\r\n"
                             "data: first\ndata:second\ndata\n\n"
                             "id: 2\revent: mode\rdata:  two spaces\r\r"
                             "retry: 100\nevent: nothing\n\n"
                             "unknown: x\ndata: end\n\n"
                             "data: unfinished\n";
static const char expected[] = "<plan|1|{\"a\":1}><message|1|first\nsecond\n><mode|2| two spaces>"
                               "<message|2|end>";

static void any_chunking_gives_the_same_events(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int round = 0; round < 500; round++) {
        struct sse_parser parser = {0};
        struct seen seen = {0};
        size_t n_stream = strlen(stream);
        for (size_t at = 0; at < n_stream;) {
            size_t n = 1 + testing_random_below(&state, round == 0 ? 1 : 20);
            n = n < n_stream - at ? n : n_stream - at;
            assert_int_equal(sse_feed(&parser, stream + at, n, note, &seen, NULL), DEFT_OK);
            at += n;
        }
        assert_string_equal(seen.text, expected);
        sse_done(&parser);
    }
}

static void the_reader_may_end_the_stream(void **unused) {
    (void)unused;
    struct sse_parser parser = {0};
    struct seen seen = {.stop_after = 2};
    assert_int_equal(sse_feed(&parser, stream, strlen(stream), note, &seen, NULL), DEFT_CLOSED);
    assert_int_equal(seen.n_events, 2);
    sse_done(&parser);
}

static void an_endless_event_is_refused(void **unused) {
    (void)unused;
    struct sse_parser parser = {0};
    struct seen seen = {0};
    struct deft_error error = {0};
    enum deft_status status = DEFT_OK;
    size_t n_fed = 0;
    size_t n_block = 1u << 16;
    char *block = malloc(n_block);
    assert_non_null(block);
    memset(block, 'x', n_block);
    while (status == DEFT_OK && n_fed < 2 * (size_t)HTTP_CLIENT_MAX_EVENT_BYTES) {
        status = sse_feed(&parser, block, n_block, note, &seen, &error);
        n_fed += n_block;
    }
    assert_int_equal(status, DEFT_LIMIT);
    assert_true(n_fed >= HTTP_CLIENT_MAX_EVENT_BYTES);
    sse_done(&parser);
    free(block);
}

static void long_words_are_cut(void **unused) {
    (void)unused;
    struct sse_parser parser = {0};
    struct seen seen = {0};
    char text[512];
    int n = snprintf(text, sizeof(text), "event: %0200d\ndata: x\n\n", 0);
    assert_int_equal(sse_feed(&parser, text, (size_t)n, note, &seen, NULL), DEFT_OK);
    assert_int_equal(seen.n_events, 1);
    assert_int_equal(seen.n, SSE_WORD_BYTES - 1 + strlen("<||x>"));
    sse_done(&parser);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(any_chunking_gives_the_same_events),
    cmocka_unit_test(the_reader_may_end_the_stream),
    cmocka_unit_test(an_endless_event_is_refused),
    cmocka_unit_test(long_words_are_cut),
};
TESTING_MAIN(cases)
