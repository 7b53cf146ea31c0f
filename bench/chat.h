/* chat.h: one streamed answer of an OpenAI-style server, and when each piece of it came. */
#ifndef BENCH_CHAT_H
#define BENCH_CHAT_H

#include <stdatomic.h>

#include "base/mem.h"

typedef struct chat_server {
    const char *url;    /* without a path: http://127.0.0.1:8080 */
    const char *key;    /* or "" */
    const char *model;  /* or "": the server's own choice */
    bool plain;         /* /v1/completions, for models without a chat template */
    int32_t word;       /* the only token that answers may have; -1: as the model likes */
} chat_server;

typedef struct chat {
    /* asked */
    const chat_server *server;
    const char *prompt;
    int max_tokens;
    _Atomic bool *leave;         /* when it becomes true the answer is no longer wanted; or NULL */
    /* measured */
    uint64_t sent_ns, ended_ns;
    uint64_t *at;                /* when each piece of text came */
    size_t cap;
    _Atomic size_t n;
    int prompt_tokens, cached_tokens, completion_tokens; /* as the server's usage tells; -1: it does not */
    bool left;                   /* ended because of leave */
    char failure[400];           /* "" when all is well */
    buf line;                    /* what came of the current line */
    bool done;
} chat;

/* Asks and reads to the end. Anything but a whole answer of max_tokens tokens is a failure (unless it was left). */
void chat_run(chat *c);
void chat_free(chat *c);

/* The id of a token whose text can be seen, from the server's /tokenize; -1 when it has none. */
int32_t chat_find_word(const chat_server *server);

#endif
