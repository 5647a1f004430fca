/* deft-controller replay: decides again what was decided, from what is kept of it. */
#ifndef REPLAY_H
#define REPLAY_H

/* The subcommand: argv[0] is "replay". Reads the database beside a controller that may be at work,
 * and prints a line per decision. Returns the exit status: 0 all decisions agree, 1 one differs,
 * 2 a wrong command line, or there is nothing to compare. */
int replay_main(int argc, char **argv);

#endif
