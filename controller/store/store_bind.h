/* Parameters of statements, as the store's files bind them. */
#ifndef STORE_BIND_H
#define STORE_BIND_H

#include <math.h>
#include <sqlite3.h>
#include <stdint.h>

static inline void store_bind_int(sqlite3_stmt *s, int parameter, int64_t value) {
    (void)sqlite3_bind_int64(s, parameter, value);
}
/* The text lives until the statement is stepped; NULL is fine. */
static inline void store_bind_text(sqlite3_stmt *s, int parameter, const char *value) {
    (void)sqlite3_bind_text(s, parameter, value, -1, SQLITE_STATIC);
}
/* What is no number is NULL. */
static inline void store_bind_real(sqlite3_stmt *s, int parameter, double value) {
    if (isfinite(value)) {
        (void)sqlite3_bind_double(s, parameter, value);
    } else {
        (void)sqlite3_bind_null(s, parameter);
    }
}

#endif
