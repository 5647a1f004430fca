#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "doctor.h"
#include "wire/wire_health.h"

/* The clock of a header counts seconds. */
#define CONTROLLER_NEAR_S   3
#define CONTROLLER_FAR_S    60
#define CONTROLLER_DAY_S    86400
#define CONTROLLER_FEW_DAYS 14

static void controller_clock(struct doctor *doctor, const struct http_reply *reply) {
    int64_t now_s = (int64_t)time(NULL);
    if (reply->date_s == 0) {
        return;
    }
    int64_t off_s = now_s - reply->date_s;
    int64_t far_s = off_s < 0 ? -off_s : off_s;
    if (far_s <= CONTROLLER_NEAR_S) {
        doctor_say(doctor, DOCTOR_FINE, "clock", NULL, "as the controller's");
        return;
    }
    doctor_say(doctor, far_s < CONTROLLER_FAR_S ? DOCTOR_NOTE : DOCTOR_WRONG, "clock",
               "tuning orders by the controller's clock; logs and certificates suffer: let NTP run",
               "%" PRId64 " s %s the controller's", far_s, off_s < 0 ? "behind" : "ahead of");
}

static void controller_certificate(struct doctor *doctor, const struct http_reply *reply) {
    if (reply->expires_s == 0) {
        return;
    }
    int64_t days = (reply->expires_s - (int64_t)time(NULL)) / CONTROLLER_DAY_S;
    doctor_say(doctor, days < CONTROLLER_FEW_DAYS ? DOCTOR_NOTE : DOCTOR_FINE, "certificate",
               days < CONTROLLER_FEW_DAYS
                   ? "replace the file and send the controller SIGHUP; nothing is interrupted"
                   : NULL,
               "good for %" PRId64 " more days", days);
}

static void controller_version(struct doctor *doctor, const char *version) {
    if (version[0] == '\0' || strcmp(version, DEFT_VERSION_TEXT) == 0) {
        return;
    }
    doctor_say(doctor, DOCTOR_NOTE, "version", "agents and controller are best of one version",
               "the controller is of version %s, this is %s", version, DEFT_VERSION_TEXT);
}

/* 0: it cannot be reached, so nothing else can be asked. */
static int controller_reach(struct doctor *doctor, const struct cli_controller *controller) {
    struct http_reply reply = {0};
    struct wire_health health = {.refused_writes = 0};
    struct deft_error error = {0};
    enum deft_status status = cli_controller_get(controller, "/healthz", &reply, &error);
    if (status == DEFT_OK) {
        status = wire_health_decode(reply.body, reply.n_bytes, &health, &error);
    }
    if (status != DEFT_OK) {
        doctor_say(doctor, DOCTOR_WRONG, "controller",
                   "jobs train exact without it; start it, or name it: --controller URL or "
                   "DEFT_CONTROLLER",
                   "%s", error.text);
        http_reply_done(&reply);
        return 0;
    }
    if (strcmp(health.status, "ok") == 0) {
        doctor_say(doctor, DOCTOR_FINE, "controller", NULL, "%s is well", controller->url);
    } else {
        int is_database = strcmp(health.database, "ok") != 0;
        doctor_say(doctor, DOCTOR_WRONG, "controller",
                   "plans go on from memory; make room, or see deft db check",
                   "%s is %s, %" PRIu64 " writes were refused: %.300s", controller->url,
                   health.status, health.refused_writes,
                   is_database ? health.database : health.upkeep);
    }
    controller_version(doctor, health.version);
    controller_clock(doctor, &reply);
    controller_certificate(doctor, &reply);
    http_reply_done(&reply);
    return 1;
}

static void controller_ready(struct doctor *doctor, const struct cli_controller *controller) {
    struct http_reply reply = {0};
    struct deft_error error = {0};
    if (cli_controller_get(controller, "/readyz", &reply, &error) != DEFT_OK) {
        doctor_say(doctor, DOCTOR_WRONG, "ready", "its log tells more", "%s", error.text);
    }
    http_reply_done(&reply);
}

static void controller_token(struct doctor *doctor, const struct cli_controller *controller) {
    struct http_reply reply = {0};
    struct deft_error error = {0};
    enum deft_status status =
        cli_controller_get(controller, "/api/v1/jobs?limit=1", &reply, &error);
    http_reply_done(&reply);
    if (status == DEFT_OK) {
        doctor_say(doctor, DOCTOR_FINE, "access", NULL, "jobs can be seen");
    } else if (error.backend_code == 403) {
        doctor_say(doctor, DOCTOR_NOTE, "access", "fine for a job's agent; people need a viewer's",
                   "the token is known, and may not see jobs");
    } else {
        doctor_say(doctor, DOCTOR_WRONG, "access",
                   "give a token by DEFT_TOKEN_FILE or --token-file; an operator makes them: "
                   "deft token create",
                   "%s", error.text);
    }
}

static void controller_job(struct doctor *doctor, const struct cli_controller *controller,
                           const char *id) {
    struct wire_job job;
    struct deft_error error = {0};
    if (cli_controller_job(controller, id, &job, &error) != DEFT_OK) {
        doctor_say(doctor, DOCTOR_WRONG, "job",
                   "its ranks have not met or their agents cannot reach the controller; see the "
                   "job's log",
                   "%s", error.text);
        return;
    }
    if (strcmp(job.state, "running") != 0) {
        doctor_say(doctor, DOCTOR_NOTE, "job", NULL, "%s is %s since %s", job.id, job.state,
                   job.updated_at);
    } else if (job.n_ranks_heard < job.n_ranks) {
        doctor_say(doctor, DOCTOR_WRONG, "ranks",
                   "on the nodes of the others: is the agent there, and can it reach the "
                   "controller?",
                   "%u of %u ranks are heard; the first that is not is rank %u", job.n_ranks_heard,
                   job.n_ranks, job.first_unheard);
    } else {
        doctor_say(doctor, DOCTOR_FINE, "ranks", NULL, "all %u are heard, last at %s", job.n_ranks,
                   job.updated_at);
    }
}

void doctor_controller(struct doctor *doctor, struct cli_controller *controller, const char *job) {
    struct deft_error error = {0};
    if (cli_controller_find(controller, &error) != DEFT_OK) {
        doctor_say(doctor, DOCTOR_WRONG, "controller",
                   "start one, or name it: --controller URL or DEFT_CONTROLLER", "%s", error.text);
        return;
    }
    if (!controller_reach(doctor, controller)) {
        return;
    }
    controller_ready(doctor, controller);
    controller_token(doctor, controller);
    if (job != NULL) {
        controller_job(doctor, controller, job);
    }
}
