/* chat.h: a conversation as `hearth chat` holds it: the messages, and a session that follows them. */
#ifndef CLI_CHAT_H
#define CLI_CHAT_H

#include <jansson.h>

#include "cli/generate_options.h"
#include "cli/talk.h"

typedef struct chat {
    cli_generate g;
    hearth_engine *engine;
    hearth_session *session;
    hearth_sampler *sampler;
    json_t *messages;  /* objects with role and content, the system message apart */
    char *system;      /* or NULL */
    talk_speed last;   /* of the last turn */
    bool output_gone;  /* nobody reads what is written */
    const char *agent; /* whose conversation it is, kept across runs; NULL: nobody's */
    bool known;        /* what the agent said before has been taken over */
} chat;

/* Opens everything but the options, which are there already. chat_close accepts what is half open. */
bool chat_open(chat *c, const char *model, err *e);
void chat_close(chat *c);

bool chat_set_system(chat *c, const char *text, err *e); /* NULL or "": none */
/* Adds a user's message and answers it. When that fails the message is taken back. */
bool chat_say(chat *c, const char *text, size_t len, err *e);
/* Answers the last message anew. */
bool chat_retry(chat *c, err *e);
/* Takes back the last message of the user and what followed it; false when there is none. */
bool chat_undo(chat *c);
void chat_reset(chat *c);
bool chat_save(const chat *c, const char *path, err *e);
bool chat_load(chat *c, const char *path, err *e);

#endif
