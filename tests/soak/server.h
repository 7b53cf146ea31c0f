/* server.h: the server under load: started on a free port, looked at, killed. */
#ifndef TESTS_SOAK_SERVER_H
#define TESTS_SOAK_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct soak_server {
    pid_t pid;
    int port, out;
} soak_server;

/* argv as execv takes it, with --port 0. errors: the file that standard error is added to, or NULL. Returns when the server says where it is; false: it does not. */
bool soak_start(soak_server *s, char **argv, const char *errors);
/* kill -9. */
void soak_kill(soak_server *s);
/* Asks it to end; true when it does, in order. */
bool soak_stop(soak_server *s);
double soak_memory_mb(const soak_server *s); /* without mapped files, which the system may drop */
int soak_descriptors(const soak_server *s);

#endif
