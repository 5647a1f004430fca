/* Where rank 0 of a step is found. The one file that asks Slurm's library about nodes. */
#ifndef SPANK_HOST_H
#define SPANK_HOST_H

#include <stddef.h>

/* The node's name if it resolves here, else the address that Slurm has for it. May wait for the
 * resolver and, where the name does not resolve, for slurmctld. Returns 0, or -1 without an answer.
 */
int spank_host_find(const char *name, char *out, size_t capacity_bytes);

#endif
