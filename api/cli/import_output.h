/* Files that appear whole or not at all. */
#ifndef IMPORT_OUTPUT_H
#define IMPORT_OUTPUT_H

#include <deft/status.h>

/* Writes `text` and a line end to `path`: "-" is standard output, devices and pipes are written in
 * place, everything else is replaced in one step. A signal that ends the process waits until no
 * temporary file is left. */
DEFT_NODISCARD enum deft_status import_output_write(const char *path, const char *text,
                                                    struct deft_error *error);

#endif
