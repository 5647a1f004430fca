/* deft token: who may do what at a controller. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "cli.h"
#include "cli_controller.h"
#include "cli_table.h"
#include "wire/wire_access.h"

enum {
    CMD_TOKEN_NAME = 256,
    CMD_TOKEN_ROLE,
    CMD_TOKEN_JOB,
    CMD_TOKEN_JOB_PREFIX,
    CMD_TOKEN_EXPIRES,
    CMD_TOKEN_REASON,
    CMD_TOKEN_JSON
};

static const struct argp_option cmd_token_table[] = {
    {"name", CMD_TOKEN_NAME, "NAME", 0, "create: what the record calls the token", 0},
    {"role", CMD_TOKEN_ROLE, "ROLE", 0, "create: agent, viewer or operator", 0},
    {"job", CMD_TOKEN_JOB, "ID", 0, "create: the agent's job", 0},
    {"job-prefix", CMD_TOKEN_JOB_PREFIX, "TEXT", 0, "create: the agent's jobs begin like this", 0},
    {"expires", CMD_TOKEN_EXPIRES, "TIME", 0, "create: valid so long: 12h, 30d, 900s (for ever)",
     0},
    {"reason", CMD_TOKEN_REASON, "TEXT", 0, "What the record of changes says why", 0},
    {"json", CMD_TOKEN_JSON, NULL, 0, "Print the controller's JSON", 0},
    {0},
};

struct cmd_token_input {
    struct cli_controller controller;
    const char *verb;
    const char *name; /* to revoke */
    const char *reason;
    int json;
    struct wire_token_request request;
};

static void cmd_token_copy(const struct argp_state *state, const char *option, const char *text,
                           char *out, size_t capacity_bytes) {
    if (strlen(text) >= capacity_bytes) {
        argp_error(state, "%s is longer than %zu bytes", option, capacity_bytes - 1);
    }
    (void)snprintf(out, capacity_bytes, "%s", text);
}

static void cmd_token_argument(const struct argp_state *state, struct cmd_token_input *input,
                               const char *argument) {
    static const char *const verbs[] = {"create", "list", "revoke", NULL};
    if (input->verb == NULL) {
        input->verb = verbs[cli_word(state, "the action", argument, verbs)];
    } else if (input->name == NULL && strcmp(input->verb, "revoke") == 0) {
        input->name = argument;
    } else {
        argp_error(state, "'%s' is not expected", argument);
    }
}

static void cmd_token_check(const struct argp_state *state, const struct cmd_token_input *input) {
    struct deft_error error = {0};
    if (input->verb == NULL) {
        argp_error(state, "create, list or revoke is expected");
    } else if (strcmp(input->verb, "revoke") == 0 && input->name == NULL) {
        argp_error(state, "the name of a token is expected; 'deft token list' lists them");
    } else if (strcmp(input->verb, "create") == 0 &&
               wire_token_request_check(&input->request, &error) != DEFT_OK) {
        argp_error(state, "--%s", error.text);
    }
}

static void cmd_token_expires(const struct argp_state *state, const char *text, uint64_t *out_s) {
    struct deft_error error = {0};
    if (parse_seconds("--expires", text, WIRE_MAX_EXPIRES_IN_S, out_s, &error) != DEFT_OK) {
        argp_error(state, "%s", error.text);
    }
}

static error_t cmd_token_parse(int key, char *argument, struct argp_state *state) {
    struct cmd_token_input *input = state->input;
    struct wire_token_request *request = &input->request;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &input->controller;
        break;
    case CMD_TOKEN_NAME:
        cmd_token_copy(state, "--name", argument, request->name, sizeof(request->name));
        break;
    case CMD_TOKEN_ROLE:
        cmd_token_copy(state, "--role", argument, request->role, sizeof(request->role));
        break;
    case CMD_TOKEN_JOB:
        cmd_token_copy(state, "--job", argument, request->job, sizeof(request->job));
        break;
    case CMD_TOKEN_JOB_PREFIX:
        cmd_token_copy(state, "--job-prefix", argument, request->job_prefix,
                       sizeof(request->job_prefix));
        break;
    case CMD_TOKEN_EXPIRES:
        cmd_token_expires(state, argument, &request->expires_in_s);
        break;
    case CMD_TOKEN_REASON:
        input->reason = argument;
        break;
    case CMD_TOKEN_JSON:
        input->json = 1;
        break;
    case ARGP_KEY_ARG:
        cmd_token_argument(state, input, argument);
        break;
    case ARGP_KEY_END:
        cmd_token_check(state, input);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static enum deft_status cmd_token_create(struct cmd_token_input *input, struct http_reply *reply,
                                         struct deft_error *error) {
    struct wire_token token;
    char *body = NULL;
    enum deft_status status = wire_token_request_encode(&input->request, &body, error);
    if (status == DEFT_OK) {
        status = cli_controller_change(&input->controller, "POST", "/api/v1/tokens", body,
                                       input->reason, reply, error);
    }
    if (status == DEFT_OK && !input->json) {
        status = wire_token_decode(reply->body, reply->n_bytes, &token, error);
        if (status == DEFT_OK) {
            (void)printf("%s\n", token.token);
        }
    }
    free(body);
    return status;
}

static enum deft_status cmd_token_revoke(struct cmd_token_input *input, struct http_reply *reply,
                                         struct deft_error *error) {
    struct wire_token token;
    char path[CLI_CONTROLLER_PATH_BYTES];
    enum deft_status status = cli_controller_path("tokens", input->name, "", path, error);
    if (status == DEFT_OK) {
        status = cli_controller_change(&input->controller, "DELETE", path, NULL, input->reason,
                                       reply, error);
    }
    if (status == DEFT_OK && !input->json) {
        status = wire_token_decode(reply->body, reply->n_bytes, &token, error);
        if (status == DEFT_OK) {
            (void)printf("%s is revoked since %s\n", token.name, token.revoked_at);
        }
    }
    return status;
}

static void cmd_token_print(const struct wire_tokens *tokens) {
    static const char *const headings[] = {"NAME", "ROLE", "STATE", "JOB", "CREATED", "EXPIRES"};
    size_t n_columns = sizeof(headings) / sizeof(headings[0]);
    struct cli_table table;
    cli_table_init(&table, n_columns);
    for (size_t i = 0; i < n_columns; i++) {
        cli_table_add(&table, "%s", headings[i]);
    }
    for (uint32_t i = 0; i < tokens->n_tokens; i++) {
        const struct wire_token *token = &tokens->tokens[i];
        const char *prefix = token->job_prefix;
        cli_table_add(&table, "%s", token->name);
        cli_table_add(&table, "%s", token->role);
        cli_table_add(&table, "%s", token->state);
        cli_table_add(&table, "%s%s%s", token->job, prefix, prefix[0] != '\0' ? "*" : "");
        cli_table_add(&table, "%s", token->created_at);
        cli_table_add(&table, "%s", token->expires_at[0] != '\0' ? token->expires_at : "never");
    }
    cli_table_print(&table, stdout);
    cli_table_done(&table);
}

static enum deft_status cmd_token_list(struct cmd_token_input *input, struct http_reply *reply,
                                       struct deft_error *error) {
    struct wire_tokens tokens = {0};
    enum deft_status status =
        cli_controller_get(&input->controller, "/api/v1/tokens", reply, error);
    if (status == DEFT_OK && !input->json) {
        status = wire_tokens_decode(reply->body, reply->n_bytes, &tokens, error);
        if (status == DEFT_OK) {
            cmd_token_print(&tokens);
        }
    }
    wire_tokens_done(&tokens);
    return status;
}

static int cmd_token_main(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_controller_argp, 0, NULL, 0}, {0}};
    static const struct argp parser = {
        .options = cmd_token_table,
        .parser = cmd_token_parse,
        .children = children,
        .args_doc = "create|list\nrevoke NAME",
        .doc = "Makes, lists and revokes the tokens of a controller, which takes an operator's. "
               "create prints the new token on standard output, once. The very first one is made "
               "beside the database: 'deft-controller token create'."};
    struct cmd_token_input input = {0};
    struct deft_error error = {0};
    struct http_reply reply = {0};
    (void)argp_parse(&parser, argc, argv, 0, NULL, &input);
    enum deft_status status = cli_controller_find(&input.controller, &error);
    if (status == DEFT_OK) {
        status = strcmp(input.verb, "create") == 0   ? cmd_token_create(&input, &reply, &error)
                 : strcmp(input.verb, "revoke") == 0 ? cmd_token_revoke(&input, &reply, &error)
                                                     : cmd_token_list(&input, &reply, &error);
    }
    if (status == DEFT_OK && input.json) {
        (void)printf("%s\n", reply.body);
    }
    http_reply_done(&reply);
    return cli_status(status, &error);
}

const struct cli_command cmd_token = {
    .name = "token",
    .summary = "Make, list and revoke access tokens of a controller",
    .run = cmd_token_main,
};
