/* Which controller a command talks to, as whom, and talking to it. */
#ifndef CLI_CONTROLLER_H
#define CLI_CONTROLLER_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

#include "client/client_options.h"
#include "client/http_client.h"
#include "wire/wire.h"

#define CLI_CONTROLLER_URL_BYTES 512u
/* Names inside the state directory. */
#define CLI_CONTROLLER_PORT_FILE "controller.port"
#define CLI_CONTROLLER_DATABASE  "deft.db"
#define CLI_CONTROLLER_LOG       "controller.log"
#define CLI_CONTROLLER_TOKEN     "controller.token" /* shown to the controller of that port file */

struct cli_controller {
    const char *wished; /* --controller; NULL: see cli_controller_find */
    struct client_options credentials;
    char url[CLI_CONTROLLER_URL_BYTES];
    char token_file[PATH_MAX]; /* beside the port file; "": none */
    const volatile int *stop;  /* non-zero ends a request; NULL: only its time does */
};
/* For argp's children: --controller and whom to be; the input is a struct cli_controller. */
extern const struct argp cli_controller_argp;

/* The port that a controller of this state directory has written. DEFT_NOT_FOUND without one. */
DEFT_NODISCARD enum deft_status cli_controller_port(const char *state_dir, uint16_t *out_port,
                                                    struct deft_error *error);
/* --controller, else DEFT_CONTROLLER, else the running controller of the user's state directory,
 * with the token beside its port file if no other was named. Other controllers never see that one.
 */
DEFT_NODISCARD enum deft_status cli_controller_find(struct cli_controller *controller,
                                                    struct deft_error *error);
/* The controller of this state directory. */
DEFT_NODISCARD enum deft_status cli_controller_local(struct cli_controller *controller,
                                                     const char *state_dir, uint16_t port,
                                                     struct deft_error *error);
/* DEFT_OK when /healthz answers 200 within a second. */
DEFT_NODISCARD enum deft_status cli_controller_health(const struct cli_controller *controller,
                                                      struct deft_error *error);

/* GET; a status other than 200 fails with the controller's own sentence (404: DEFT_NOT_FOUND). */
DEFT_NODISCARD enum deft_status cli_controller_get(const struct cli_controller *controller,
                                                   const char *path, struct http_reply *out,
                                                   struct deft_error *error);
/* PUT, POST or DELETE of a JSON object, likewise, 201 being as good as 200. `body` NULL: an empty
 * one. `reason`, which may be NULL, joins it. */
DEFT_NODISCARD enum deft_status cli_controller_change(const struct cli_controller *controller,
                                                      const char *method, const char *path,
                                                      const char *body, const char *reason,
                                                      struct http_reply *out,
                                                      struct deft_error *error);
/* "/api/v1/COLLECTION/{id}REST" with the id escaped. */
#define CLI_CONTROLLER_PATH_BYTES (3 * WIRE_ID_BYTES + 64)
DEFT_NODISCARD enum deft_status cli_controller_path(const char *collection, const char *id,
                                                    const char *rest,
                                                    char out[CLI_CONTROLLER_PATH_BYTES],
                                                    struct deft_error *error);
/* One job, and the decisions of an incarnation, decoded. */
DEFT_NODISCARD enum deft_status cli_controller_job(const struct cli_controller *controller,
                                                   const char *job, struct wire_job *out,
                                                   struct deft_error *error);
DEFT_NODISCARD enum deft_status cli_controller_decisions(const struct cli_controller *controller,
                                                         const char *incarnation,
                                                         struct wire_decisions *out,
                                                         struct deft_error *error);

#endif
