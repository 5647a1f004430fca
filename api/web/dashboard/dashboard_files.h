/* The dashboard's files, packed by the build. Without Node.js there are none, and the reason. */
#ifndef DASHBOARD_FILES_H
#define DASHBOARD_FILES_H

#include <stddef.h>

struct dashboard_file {
    const char *name; /* below /assets/; the first is the page itself */
    const char *content_type;
    const char *tag; /* 32 hexadecimal digits of what is in it, unpacked */
    const unsigned char *packed;
    size_t n_packed;
    size_t n_bytes; /* unpacked */
};

extern const struct dashboard_file dashboard_files[];
extern const size_t dashboard_n_files;
extern const char *const dashboard_absence; /* "": they are there */

#endif
