/* deft-controller db: a database as a file. */
#ifndef DB_COMMAND_H
#define DB_COMMAND_H

/* The subcommand: argv[0] is "db". Returns the exit status: 0 done, and of check: the database is
 * whole; 1 it is not, or it could not be done; 2 a wrong command line. */
int db_command_main(int argc, char **argv);

#endif
