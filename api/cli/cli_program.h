/* The other programs of an installation. */
#ifndef CLI_PROGRAM_H
#define CLI_PROGRAM_H

#include <limits.h>

/* The path of the program `name` beside our own, so that a build tree or an unusual prefix works;
 * else `name` itself, for a search along PATH. */
void cli_program_find(const char *name, char out[PATH_MAX]);

#endif
