/* serve.h: what cmd_serve.c reads from options and serve.c does. */
#ifndef CLI_SERVE_H
#define CLI_SERVE_H

#include <stdatomic.h>

#include "api/models.h"
#include "cli/cli.h"

enum { SERVE_MODELS = 64 };

typedef struct serve_command {
    http_options http;
    models_options models;
    cli_list given;                     /* the models: [NAME=]FILE */
    const char *name, *standard;        /* of the first; the default one's */
    cli_list keys;
    const char *key_file, *admin_key;
    const char *record;                 /* where the scheduler's decisions go, or NULL */
    float drain_s;
    _Atomic bool up;                    /* it serves */
    char *paths[SERVE_MODELS];
} serve_command;

/* Until it is told to end. Returns the exit status. */
int serve(serve_command *c);

#endif
