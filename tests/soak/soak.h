/* soak.h: what the two ways to soak share. */
#ifndef TESTS_SOAK_SOAK_H
#define TESTS_SOAK_SOAK_H

#include "soak/server.h"

enum { MOST_CLIENTS = 1024 };

/* Tells of a demand and whether it was met, which it returns. */
bool check(bool fine, const char *what);
/* crash.c; command has room for two options more. */
bool crash(char **command, int seconds, int n_clients, int kills);

#endif
