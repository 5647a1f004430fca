/* Tokens as they are kept in files and sent. */
#ifndef HTTP_TOKEN_H
#define HTTP_TOKEN_H

#include <deft/status.h>

/* Longer is none of ours. */
#define HTTP_TOKEN_BYTES 256u

/* The first line of a file, without what is blank around it. DEFT_IO when it cannot be read,
 * DEFT_INVALID when it holds no token. */
DEFT_NODISCARD enum deft_status http_token_read(const char *path, char out[HTTP_TOKEN_BYTES],
                                                struct deft_error *error);
/* Whether it can be sent: printable ASCII without blanks, so that it is one word of one header. */
int http_token_is_one(const char *token);

#endif
