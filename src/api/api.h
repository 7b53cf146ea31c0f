/* api.h: the routes: what OpenAI's and Anthropic's clients ask for, hearth's own, and the page. Translates them to the engine's loop.
 * Every field of a request is honoured or refused in the API's own shape; none is read and ignored. */
#ifndef API_API_H
#define API_API_H

#include "engine/loop.h"
#include "http/http.h"

typedef struct api api;

typedef struct api_options {
    const char *model;            /* the model's name in the APIs */
    const char *const *aliases;   /* other names for it, NULL-terminated, or NULL */
    hearth_sampler_options sampler; /* where a request does not say */
    int limit_s;                  /* longest time of a request; 0: none */
    bool admin;                   /* there are routes for administrators */
    const char *responses_dir;    /* where responses are kept for later requests; NULL: in memory */
} api_options;

/* engine, loop and what options point to must outlive it. */
api *api_new(hearth_engine *engine, loop *l, const api_options *options, err *e);
void api_free(api *a);

/* For http_start, with the api as user. */
http_handler api_handle;

#endif
