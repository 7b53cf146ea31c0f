/* talk.h: what `run` and `chat` do alike: bring the session to a prompt, generate, show the text, measure. */
#ifndef CLI_TALK_H
#define CLI_TALK_H

#include <stdio.h>

#include "base/mem.h"
#include "cli/cli.h"

/* Tokens owned by the one who asked for them. Zero-initialised is empty. */
typedef struct cli_tokens {
    int32_t *ids;
    size_t n;
} cli_tokens;
bool cli_tokenize(const hearth_engine *engine, const char *text, size_t len, unsigned flags, cli_tokens *out, err *e);
void cli_tokens_free(cli_tokens *t);

/* The tokens of a rendered conversation, as retoken makes them from what the session holds. */
bool talk_tokens(const hearth_engine *engine, const hearth_session *session, const char *text, size_t len, cli_tokens *out, err *e);

typedef struct talk_speed {
    size_t prompt_tokens;  /* all, and of these those that were there already */
    size_t reused_tokens;
    size_t answer_tokens;
    double prompt_seconds, first_seconds, answer_seconds;
} talk_speed;
/* "prompt 20 tokens (12 kept) at 300 tokens/s, ..." */
void talk_print_speed(FILE *to, const talk_speed *speed);

/* Makes the session hold exactly these tokens, computing only what is new. Ctrl-C ends it early: true all the same, and
 * interrupt_pending tells. Fails in words when they do not fit; advice tells what to do then. */
bool talk_read(const hearth_engine *engine, hearth_session *session, const cli_tokens *tokens, const char *advice, talk_speed *speed, err *e);

/* What is written on standard output. */
typedef struct talk_output {
    buf *copy;         /* gets the same text, or NULL */
    bool broken;       /* nobody reads any more */
    bool no_line_end;  /* something was written and it does not end with a line end */
    err failure;
} talk_output;
bool talk_write(talk_output *out, const char *text, size_t len);
/* Ends the last line. False when anything could not be written. */
bool talk_write_end(talk_output *out, err *e);

/* Generates to standard output until the model ends, Ctrl-C, or nobody reads. on_token may be NULL. */
typedef void talk_on_token(void *user, int32_t token, const float *logits);
bool talk_answer(hearth_session *session, hearth_sampler *sampler, const hearth_generate_options *options, talk_on_token *on_token,
                 void *user, talk_output *out, talk_speed *speed, hearth_finish *finish, err *e);

#endif
