/* One agent of a fleet, and what the fleet's files share. */
#ifndef LOAD_AGENT_H
#define LOAD_AGENT_H

#include "client/sse.h"
#include "daemon_pace.h"
#include "load_fleet.h"
#include "load_http.h"
#include "load_job.h"
#include "load_wheel.h"

enum load_agent_state { LOAD_AGENT_IDLE, LOAD_AGENT_REGISTERING, LOAD_AGENT_REPORTING };

struct load_agent {
    struct load_fleet *fleet;
    struct load_job *job;
    uint32_t rank;
    uint32_t n_starts; /* beyond the first */
    uint64_t tag;      /* of its connection for reports; its stream's is one more */
    unsigned source;   /* address that it comes from */
    int keeps;         /* its connection, between reports */

    struct load_http up;
    struct load_timer up_timer;
    struct daemon_pace up_pace;
    enum load_agent_state state;
    int is_registered;
    uint64_t n_acked;  /* reports, over all starts */
    uint64_t n_before; /* of them, by earlier starts */
    int64_t begin_ns;  /* its first report is due; 0: not known yet */
    int64_t sent_ns;
    int64_t acked_ns;

    struct load_http down;
    struct load_timer down_timer;
    struct daemon_pace down_pace;
    struct sse_parser sse;
    int is_open;
    int64_t heard_ns;
    uint64_t plan_seen;
    uint64_t called;    /* newest call of the operator that found its stream open */
    uint64_t mode_call; /* newest one whose mode, and whose plan, has come */
    uint64_t plan_call;
};

/* What the operator has asked for last. */
struct load_call {
    uint64_t number; /* 0: nothing yet */
    char mode[16];
    int64_t sent_ns;
    int is_under_way; /* its answer has not come */
    int wants_plan;
    uint64_t plan_base; /* plans above this number are the answer */
    uint32_t n_streams; /* that are to hear of it */
    uint32_t n_modes;   /* that have */
    uint32_t n_plans;
};

struct load_fleet {
    struct load_options options;
    int epoll_fd;
    int64_t now_ns;
    int64_t drain_ns; /* reports due later are not made; 0: all are */
    uint64_t random;
    uint32_t n_jobs;
    struct load_job *jobs;
    struct load_agent *agents;
    struct load_http operator_http;
    struct load_call call;
    struct load_figures figures;
    struct load_wheel wheel;
    struct load_times acks;
    struct load_times modes;
    struct load_times plans;
};

void load_agent_init(struct load_agent *agent, struct load_fleet *fleet, uint32_t index,
                     struct load_job *job, uint32_t rank);
void load_agent_done(struct load_agent *agent);
/* A timer is over. */
void load_agent_up_due(struct load_agent *agent);
void load_agent_down_due(struct load_agent *agent);
/* epoll has something. */
void load_agent_up_event(struct load_agent *agent);
void load_agent_down_event(struct load_agent *agent);
/* Nothing is under way, and no report is due. */
int load_agent_is_idle(const struct load_agent *agent);

#endif
