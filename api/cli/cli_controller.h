/* Which controller a command talks to, and talking to it. */
#ifndef CLI_CONTROLLER_H
#define CLI_CONTROLLER_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

#include "client/http_client.h"
#include "wire/wire.h"

#define CLI_CONTROLLER_URL_BYTES 512u
/* Names inside the state directory. */
#define CLI_CONTROLLER_PORT_FILE "controller.port"
#define CLI_CONTROLLER_DATABASE  "deft.db"
#define CLI_CONTROLLER_LOG       "controller.log"

/* The port that a controller of this state directory has written. DEFT_NOT_FOUND without one. */
DEFT_NODISCARD enum deft_status cli_controller_port(const char *state_dir, uint16_t *out_port,
                                                    struct deft_error *error);
/* `wished`, else DEFT_CONTROLLER, else the running controller of the user's state directory. */
DEFT_NODISCARD enum deft_status cli_controller_url(const char *wished,
                                                   char out[CLI_CONTROLLER_URL_BYTES],
                                                   struct deft_error *error);
/* DEFT_OK when /healthz answers 200 within a second. */
DEFT_NODISCARD enum deft_status cli_controller_health(const char *url, struct deft_error *error);

/* GET; a status other than 200 fails with the controller's own sentence (404: DEFT_NOT_FOUND). */
DEFT_NODISCARD enum deft_status cli_controller_get(const char *url, const char *path,
                                                   struct http_reply *out,
                                                   struct deft_error *error);
/* PUT of JSON, likewise. */
DEFT_NODISCARD enum deft_status cli_controller_put(const char *url, const char *path,
                                                   const char *body, struct http_reply *out,
                                                   struct deft_error *error);
/* "/api/v1/COLLECTION/{id}REST" with the id escaped. */
#define CLI_CONTROLLER_PATH_BYTES (3 * WIRE_ID_BYTES + 64)
DEFT_NODISCARD enum deft_status cli_controller_path(const char *collection, const char *id,
                                                    const char *rest,
                                                    char out[CLI_CONTROLLER_PATH_BYTES],
                                                    struct deft_error *error);
/* One job, and the decisions of an incarnation, decoded. */
DEFT_NODISCARD enum deft_status cli_controller_job(const char *url, const char *job,
                                                   struct wire_job *out, struct deft_error *error);
DEFT_NODISCARD enum deft_status cli_controller_decisions(const char *url, const char *incarnation,
                                                         struct wire_decisions *out,
                                                         struct deft_error *error);

#endif
