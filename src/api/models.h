/* models.h: the models that one server has by name. Each is loaded when it is first asked for; when their weights would take more memory than there is, those
 * that were not used for longest leave. In use means that it stays: a model leaves when no request uses it any more. */
#ifndef API_MODELS_H
#define API_MODELS_H

#include "api/api.h"

typedef struct models models;

typedef struct models_options {
    hearth_engine_options engine; /* for each of them */
    loop_options loop;
    api_options api;      /* aliases are other names of the default model */
    uint64_t memory;      /* bytes of weights; a model that is larger is loaded when no other is */
    const char *folder;   /* every model in it can be asked for by its name; NULL: none */
    void (*tell)(void *user, const char *sentence); /* what is loaded and unloaded; from another thread; may be NULL */
    void *tell_user;
} models_options;

/* What options point to must outlive it. */
models *models_new(const models_options *options, err *e);
/* A model under a name of its own, not loaded yet. The first one is the default. */
bool models_add(models *m, const char *name, const char *path, err *e);
/* Another one is the default from now on. */
bool models_set_default(models *m, const char *name, err *e);
/* Returns when it is loaded. name is NULL for the default. */
bool models_load(models *m, const char *name, err *e);
/* Returns when it is not, which is after its requests have ended. */
bool models_unload(models *m, const char *name, err *e);
const char *models_default(models *m);

/* For http_start: api_handle and this. */
api *models_api(models *m);

/* Answers that run or wait. */
int models_busy(models *m);
/* No new requests; those that are there may end until then. */
void models_drain(models *m, uint64_t limit_ns);
/* Ends what still runs. */
void models_end(models *m);
/* After the HTTP server has stopped. */
void models_free(models *m);

#endif
