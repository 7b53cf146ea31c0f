/* cache.h: what the commands of `hearth cache` for conversations share. */
#ifndef CLI_CACHE_H
#define CLI_CACHE_H

#include <jansson.h>

#include "cli/cli.h"
#include "store/agent.h"

typedef struct agents_command {
    const char *dir, *tenant, *args[2];
    uint64_t most;
    bool json;
    shelf *shelf;
    json_t *list;
    int status;
    size_t n, n_bad;
    uint64_t bytes, of_bytes; /* checked so far */
    err e;
} agents_command;

/* Parses the options that all have, and as many arguments as allowed, and opens the folder: 0, or 1 with c->e set, or -1 when the command ends with c->status. */
int cache_parse(agents_command *c, int argc, char **argv, const char *usage, const char *about, int min_args, int max_args);
/* Prints the object when there is one and --json was given (it is freed in any case), says what went wrong, and returns the status. */
int cache_finish(agents_command *c, json_t *object);

#endif
