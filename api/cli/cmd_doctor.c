/* deft doctor: what stands between a job and its tuning. */
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"
#include "cli_controller.h"
#include "doctor.h"

enum { CMD_DOCTOR_SOCKET = 256, CMD_DOCTOR_PLUGSTACK, CMD_DOCTOR_JOB };

static const struct argp_option cmd_doctor_table[] = {
    {"socket", CMD_DOCTOR_SOCKET, "PATH", 0,
     "The agent's, '@NAME' if abstract (DEFT_AGENT_SOCKET, as inside a job)", 0},
    {"job", CMD_DOCTOR_JOB, "ID", 0, "Look at the ranks of this job, too", 0},
    {"plugstack", CMD_DOCTOR_PLUGSTACK, "FILE", 0,
     "Slurm's list of plug-ins (plugstack.conf beside SLURM_CONF, else in /etc/slurm)", 0},
    {0},
};

struct cmd_doctor_input {
    struct cli_controller controller;
    const char *socket;
    const char *job;
    const char *plugstack;
};

static error_t cmd_doctor_parse(int key, char *argument, struct argp_state *state) {
    struct cmd_doctor_input *input = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &input->controller;
        return 0;
    case CMD_DOCTOR_SOCKET:
        input->socket = argument;
        return 0;
    case CMD_DOCTOR_JOB:
        input->job = argument;
        return 0;
    case CMD_DOCTOR_PLUGSTACK:
        input->plugstack = argument;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' was not expected", argument);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int cmd_doctor_run(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_controller_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        .options = cmd_doctor_table,
        .parser = cmd_doctor_parse,
        .children = children,
        .doc = "Look at programs, machine, agent, Slurm and controller, say what is wrong and what "
               "to do about it. Changes nothing.\vExit status: 0 unless something is wrong. Run it "
               "where a job runs: inside an allocation, a pod, or 'deft run -- deft doctor'."};
    struct cmd_doctor_input input = {.socket = getenv("DEFT_AGENT_SOCKET")};
    struct doctor doctor = {0};
    (void)argp_parse(&argp, argc, argv, 0, NULL, &input);
    doctor_programs(&doctor);
    doctor_machine(&doctor);
    doctor_agent(&doctor, input.socket);
    doctor_slurm(&doctor, input.plugstack);
    doctor_controller(&doctor, &input.controller, input.job);
    int n_wrong = doctor.n_found[DOCTOR_WRONG];
    (void)printf("\n%d wrong, %d to note, %d fine\n", n_wrong, doctor.n_found[DOCTOR_NOTE],
                 doctor.n_found[DOCTOR_FINE]);
    return n_wrong > 0 ? CLI_FAILED : CLI_OK;
}

const struct cli_command cmd_doctor = {.name = "doctor",
                                       .summary = "Find what stands between a job and its tuning",
                                       .run = cmd_doctor_run};
