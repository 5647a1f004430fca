/* --html FILE: the lane chart of a timeline as one page that needs nothing else. */
#ifndef CLI_PICTURE_H
#define CLI_PICTURE_H

#include <deft/status.h>

#include "wire/wire.h"

/* Writes the page beside `path` and renames it, so that a reader never sees half of one; the name
 * leads through symbolic links. What is no regular file, such as a pipe, is written in place.
 * DEFT_INVALID when there is no way to create the file, DEFT_IO when writing it failed. */
DEFT_NODISCARD enum deft_status
cli_picture_write(const char *path, const struct wire_timeline *timeline, struct deft_error *error);

#endif
