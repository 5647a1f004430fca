#include "token_main.h"

#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "access.h"
#include "base/parse.h"
#include "base/state_dir.h"
#include "base/streams.h"
#include "beside.h"
#include "store/store_file.h"

#define TOKEN_USAGE 2

enum token_key {
    KEY_NAME = 256,
    KEY_ROLE,
    KEY_JOB,
    KEY_JOB_PREFIX,
    KEY_EXPIRES,
    KEY_REASON,
    KEY_FROM_FILE
};

struct token_input {
    const char *verb;
    const char *name; /* to revoke */
    const char *reason;
    const char *from_file; /* has the token to store; NULL: one is made */
    struct wire_token_request request;
    char db[PATH_MAX];
};

static const struct argp_option token_options[] = {
    {"db", 'd', "FILE", 0, "Database (deft.db in the state directory)", 0},
    {"name", KEY_NAME, "NAME", 0, "What the record calls the new token", 0},
    {"role", KEY_ROLE, "ROLE", 0, "agent, viewer or operator", 0},
    {"job", KEY_JOB, "ID", 0, "The agent's job", 0},
    {"job-prefix", KEY_JOB_PREFIX, "TEXT", 0, "The agent's jobs begin like this", 0},
    {"expires", KEY_EXPIRES, "TIME", 0, "Valid so long: 12h, 30d, 900s (for ever)", 0},
    {"from-file", KEY_FROM_FILE, "FILE", 0, "Store the token in FILE, unless it is there", 0},
    {"reason", KEY_REASON, "TEXT", 0, "What the record says why", 0},
    {0}};

static void token_copy(struct argp_state *state, const char *option, const char *text, char *out,
                       size_t capacity_bytes) {
    if (strlen(text) >= capacity_bytes) {
        argp_error(state, "%s is longer than %zu bytes", option, capacity_bytes - 1);
    }
    (void)snprintf(out, capacity_bytes, "%s", text);
}

static void token_expires(struct argp_state *state, const char *text, uint64_t *out_s) {
    struct deft_error error = {0};
    if (parse_seconds("--expires", text, WIRE_MAX_EXPIRES_IN_S, out_s, &error) != DEFT_OK) {
        argp_error(state, "%s", error.text);
    }
}

static void token_argument(struct argp_state *state, struct token_input *input, char *argument) {
    if (input->verb == NULL) {
        input->verb = argument;
    } else if (input->name == NULL && strcmp(input->verb, "revoke") == 0) {
        input->name = argument;
    } else {
        argp_error(state, "'%s' was not expected", argument);
    }
}

static void token_check(struct argp_state *state, const struct token_input *input) {
    struct deft_error error = {0};
    if (input->verb == NULL ||
        (strcmp(input->verb, "create") != 0 && strcmp(input->verb, "list") != 0 &&
         strcmp(input->verb, "revoke") != 0)) {
        argp_error(state, "create, list or revoke was expected");
        return;
    }
    if (strcmp(input->verb, "revoke") == 0 && input->name == NULL) {
        argp_error(state, "the name of a token is expected; 'token list' lists them");
    }
    if (strcmp(input->verb, "create") != 0 && input->from_file != NULL) {
        argp_error(state, "--from-file is for create only");
    }
    if (strcmp(input->verb, "create") == 0 &&
        wire_token_request_check(&input->request, &error) != DEFT_OK) {
        argp_error(state, "--%s", error.text);
    }
}

static error_t token_parse(int key, char *argument, struct argp_state *state) {
    struct token_input *input = state->input;
    struct wire_token_request *request = &input->request;
    switch (key) {
    case 'd':
        token_copy(state, "--db", argument, input->db, sizeof(input->db));
        return 0;
    case KEY_NAME:
        token_copy(state, "--name", argument, request->name, sizeof(request->name));
        return 0;
    case KEY_ROLE:
        token_copy(state, "--role", argument, request->role, sizeof(request->role));
        return 0;
    case KEY_JOB:
        token_copy(state, "--job", argument, request->job, sizeof(request->job));
        return 0;
    case KEY_JOB_PREFIX:
        token_copy(state, "--job-prefix", argument, request->job_prefix,
                   sizeof(request->job_prefix));
        return 0;
    case KEY_EXPIRES:
        token_expires(state, argument, &request->expires_in_s);
        return 0;
    case KEY_FROM_FILE:
        input->from_file = argument;
        return 0;
    case KEY_REASON:
        input->reason = argument;
        return 0;
    case ARGP_KEY_ARG:
        token_argument(state, input, argument);
        return 0;
    case ARGP_KEY_END:
        token_check(state, input);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Only `create` makes a database. */
static enum deft_status token_open(struct token_input *input, struct store **out,
                                   struct deft_error *error) {
    char dir[PATH_MAX / 2];
    enum deft_status status = DEFT_OK;
    if (input->db[0] == '\0') {
        status = state_dir_default(dir, sizeof(dir), error);
        if (status == DEFT_OK) {
            status = state_dir_make(dir, error);
        }
        if (status == DEFT_OK) {
            status = state_dir_join(dir, "deft.db", input->db, sizeof(input->db), error);
        }
    }
    if (status == DEFT_OK && strcmp(input->verb, "create") != 0) {
        status = store_file_expect(input->db, error); /* a typing error makes no database */
    }
    return status == DEFT_OK ? beside_open(input->db, out, error) : status;
}

static void token_print_list(const struct wire_tokens *tokens) {
    (void)printf("%-24s %-9s %-8s %-25s %-25s %s\n", "NAME", "ROLE", "STATE", "CREATED", "EXPIRES",
                 "JOB");
    for (uint32_t i = 0; i < tokens->n_tokens; i++) {
        const struct wire_token *token = &tokens->tokens[i];
        const char *prefix = token->job_prefix;
        (void)printf("%-24s %-9s %-8s %-25s %-25s %s%s%s\n", token->name, token->role, token->state,
                     token->created_at, token->expires_at[0] != '\0' ? token->expires_at : "never",
                     token->job, prefix, prefix[0] != '\0' ? "*" : "");
    }
}

/* The first line of the file. */
static enum deft_status token_read(const char *path, char out[WIRE_SECRET_BYTES],
                                   struct deft_error *error) {
    FILE *file = fopen(path, "re");
    out[0] = '\0';
    if (file == NULL || (fgets(out, WIRE_SECRET_BYTES, file) == NULL && ferror(file))) {
        int code = errno;
        if (file != NULL) {
            (void)fclose(file);
        }
        return deft_fail(error, DEFT_IO, code, "%s cannot be read: %s", path,
                         strerrordesc_np(code));
    }
    (void)fclose(file);
    out[strcspn(out, "\r\n")] = '\0';
    return DEFT_OK;
}

static enum deft_status token_adopt(const struct token_input *input, struct store *store,
                                    const struct access_cause *cause, struct deft_error *error) {
    char secret[WIRE_SECRET_BYTES];
    struct wire_token token = {0};
    int is_new = 0;
    enum deft_status status = token_read(input->from_file, secret, error);
    if (status == DEFT_OK) {
        status = access_adopt(store, &input->request, secret, cause, &token, &is_new, error);
        if (status != DEFT_OK && error->text[0] != '\0') {
            struct deft_error told = *error;
            status = deft_fail(error, status, told.backend_code, "%s: %.400s", input->from_file,
                               told.text);
        }
    }
    if (status == DEFT_OK) {
        (void)printf("%s %s, %s\n", token.name, is_new ? "is made" : "is there", token.state);
    }
    explicit_bzero(secret, sizeof(secret));
    explicit_bzero(&token, sizeof(token));
    return status;
}

static enum deft_status token_do(const struct token_input *input, struct store *store,
                                 struct deft_error *error) {
    char who[STORE_TOKEN_NAME_BYTES];
    struct wire_token token = {0};
    struct wire_tokens tokens = {0};
    const struct access_cause cause = {.who = who,
                                       .source = "deft-controller token",
                                       .reason = input->reason != NULL ? input->reason : ""};
    enum deft_status status = DEFT_OK;
    beside_who(who);
    if (strcmp(input->verb, "create") == 0 && input->from_file != NULL) {
        status = token_adopt(input, store, &cause, error);
    } else if (strcmp(input->verb, "create") == 0) {
        status = access_create(store, &input->request, &cause, &token, error);
        if (status == DEFT_OK) {
            (void)printf("%s\n", token.token);
        }
    } else if (strcmp(input->verb, "revoke") == 0) {
        status = access_revoke(store, input->name, &cause, &token, error);
        if (status == DEFT_OK) {
            (void)printf("%s is revoked since %s\n", token.name, token.revoked_at);
        }
    } else {
        status = access_list(store, &tokens, error);
        if (status == DEFT_OK) {
            token_print_list(&tokens);
        }
        wire_tokens_done(&tokens);
    }
    return status == DEFT_OK ? streams_flush(error) : status;
}

int token_main(int argc, char **argv) {
    static char name[] = "deft-controller token";
    static const struct argp argp = {
        .options = token_options,
        .parser = token_parse,
        .args_doc = "create|list|revoke [NAME]",
        .doc = "Makes, lists and revokes access tokens in the controller's database. A controller "
               "that runs knows of it within a second. create prints the token on standard output, "
               "once: only its hash is kept. With --from-file it stores a token that is there, "
               "under the name and a part of its hash, and doing so again changes nothing."};
    struct token_input input = {0};
    struct store *store = NULL;
    struct deft_error error = {0};
    argp_err_exit_status = TOKEN_USAGE;
    argv[0] = name;
    (void)argp_parse(&argp, argc, argv, 0, NULL, &input);
    (void)umask(0077);
    enum deft_status status = token_open(&input, &store, &error);
    if (status == DEFT_OK) {
        status = token_do(&input, store, &error);
    }
    store_close(store);
    if (status != DEFT_OK) {
        (void)fprintf(stderr, "deft-controller: %s\n", error.text);
        return 1;
    }
    return 0;
}
