/* The text of controller/schema/NNN.sql, put into the program by the build. */
#ifndef STORE_SCHEMA_H
#define STORE_SCHEMA_H

#include <stddef.h>

extern const char *const store_schema[];
extern const size_t store_schema_steps;

#endif
