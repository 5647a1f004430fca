/* What the commands share that work on the database themselves, beside a controller or without
 * one. */
#ifndef BESIDE_H
#define BESIDE_H

#include "store/store.h"
#include "store/store_access.h"

/* The database to be written to. With a controller at work the writes go beside it; without one it
 * is made and brought up to date as a controller would. */
DEFT_NODISCARD enum deft_status beside_open(const char *path, struct store **out,
                                            struct deft_error *error);

/* Whoever is at this machine, as the record of changes calls them: "local:USER". */
void beside_who(char out[STORE_TOKEN_NAME_BYTES]);

#endif
