/* What a service tells the supervisor that started it, in the way of systemd's sd_notify(3). */
#ifndef NOTIFY_H
#define NOTIFY_H

#define NOTIFY_READY    "READY=1"
#define NOTIFY_STOPPING "STOPPING=1"

/* Sends `state` to the socket that NOTIFY_SOCKET names; without one nothing is done. A supervisor
 * that cannot be reached changes nothing for the service. */
void notify_send(const char *state);

#endif
