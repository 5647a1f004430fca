/* deft-controller token: makes, lists and revokes tokens in the database itself. */
#ifndef TOKEN_MAIN_H
#define TOKEN_MAIN_H

/* The subcommand: argv[0] is "token". Works with the controller running or not. Returns the exit
 * status: 0, 1 when it cannot be done, 2 for a wrong command line. */
int token_main(int argc, char **argv);

#endif
