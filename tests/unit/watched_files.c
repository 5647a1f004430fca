/* Files that are replaced while somebody watches: every change is told once, when it is over. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "file_watch.h"
#include "testing.h"

struct place {
    char dir[64];
    char paths[2][96];
    char spare[96];
    int n_writes;
};

/* Another file in the place of the path, in one piece, as whoever renews certificates does it. Each
 * has a size of its own, since here number and time of one that is gone come back at once. */
static void replace(struct place *place, const char *path) {
    FILE *file = fopen(place->spare, "we");
    assert_non_null(file);
    assert_true(fprintf(file, "%*d", ++place->n_writes, 0) > 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(rename(place->spare, path), 0);
}

static void open_place(struct place *place, struct file_watch *watch) {
    char dir[] = "/tmp/deft-watch-XXXXXX";
    *place = (struct place){0};
    *watch = (struct file_watch){0};
    assert_non_null(mkdtemp(dir));
    (void)snprintf(place->dir, sizeof(place->dir), "%s", dir);
    (void)snprintf(place->spare, sizeof(place->spare), "%s/spare", dir);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(place->paths[i], sizeof(place->paths[i]), "%s/%d", dir, i);
        replace(place, place->paths[i]);
        file_watch_add(watch, place->paths[i]);
    }
    file_watch_add(watch, NULL);
    assert_int_equal(watch->n_files, 2);
}

static void close_place(struct place *place) {
    (void)unlink(place->paths[0]);
    (void)unlink(place->paths[1]);
    assert_int_equal(rmdir(place->dir), 0);
}

static void a_change_is_told_once_it_is_over(void **unused) {
    struct place place;
    struct file_watch watch;
    (void)unused;
    open_place(&place, &watch);
    assert_int_equal(file_watch_look(&watch), 0);
    replace(&place, place.paths[0]);
    assert_int_equal(file_watch_look(&watch), 0); /* the key may follow */
    replace(&place, place.paths[1]);
    assert_int_equal(file_watch_look(&watch), 0);
    assert_int_equal(file_watch_look(&watch), 1);
    assert_int_equal(file_watch_look(&watch), 0);
    close_place(&place);
}

static void what_was_taken_is_not_told(void **unused) {
    struct place place;
    struct file_watch watch;
    (void)unused;
    open_place(&place, &watch);
    replace(&place, place.paths[0]);
    assert_int_equal(file_watch_look(&watch), 0);
    file_watch_take(&watch);
    assert_int_equal(file_watch_look(&watch), 0);
    assert_int_equal(file_watch_look(&watch), 0);
    close_place(&place);
}

static void a_file_that_is_away_is_waited_for(void **unused) {
    struct place place;
    struct file_watch watch;
    (void)unused;
    open_place(&place, &watch);
    assert_int_equal(unlink(place.paths[1]), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(file_watch_look(&watch), 0);
    }
    replace(&place, place.paths[1]);
    assert_int_equal(file_watch_look(&watch), 0);
    assert_int_equal(file_watch_look(&watch), 1);
    close_place(&place);
}

/* Whatever is replaced and looked at in whatever order: not told before a quiet look, and told by
 * the second one. */
static void changes_in_any_order_are_told(void **unused) {
    struct place place;
    struct file_watch watch;
    uint64_t state = testing_seed();
    int is_pending = 0;
    int n_quiet = 0;
    (void)unused;
    open_place(&place, &watch);
    for (int i = 0; i < 2000; i++) {
        uint64_t choice = testing_random(&state) % 4;
        if (choice < 2) {
            replace(&place, place.paths[choice]);
            is_pending = 1;
            n_quiet = 0;
            continue;
        }
        int told = file_watch_look(&watch);
        n_quiet++;
        assert_int_equal(told, is_pending && n_quiet == 2);
        is_pending = is_pending && !told;
    }
    close_place(&place);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_change_is_told_once_it_is_over),
    cmocka_unit_test(what_was_taken_is_not_told),
    cmocka_unit_test(a_file_that_is_away_is_waited_for),
    cmocka_unit_test(changes_in_any_order_are_told),
};
TESTING_MAIN(cases)
