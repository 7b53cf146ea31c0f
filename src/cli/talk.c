#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/interrupt.h"
#include "cli/talk.h"
#include "engine/retoken.h"

/* ---- tokens ---- */

bool cli_tokenize(const hearth_engine *engine, const char *text, size_t len, unsigned flags, cli_tokens *out, err *e) {
    *out = (cli_tokens){0};
    size_t cap = len + 16;
    for (;;) {
        out->ids = mem_alloc(cap, sizeof *out->ids, e);
        if (!out->ids) return false;
        int64_t n = hearth_tokenize(engine, text, len, flags, out->ids, cap, e);
        if (n >= 0 && (size_t)n <= cap) {
            out->n = (size_t)n;
            return true;
        }
        cli_tokens_free(out);
        if (n < 0) return false;
        cap = (size_t)n;
    }
}

void cli_tokens_free(cli_tokens *t) {
    mem_free(t->ids);
    *t = (cli_tokens){0};
}

bool talk_tokens(const hearth_engine *engine, const hearth_session *session, const char *text, size_t len, cli_tokens *out, err *e) {
    token_list list = {0};
    if (!retoken(engine, hearth_session_tokens(session), hearth_session_length(session), text, len, &list, e)) {
        token_list_free(&list);
        return false;
    }
    *out = (cli_tokens){.ids = list.ids, .n = list.n};
    return true;
}

/* ---- reading ---- */

bool talk_read(const hearth_engine *engine, hearth_session *session, const cli_tokens *tokens, const char *advice, talk_speed *speed, err *e) {
    enum { piece = 512 }; /* between pieces Ctrl-C is heard */
    size_t context = (size_t)hearth_engine_info(engine).n_context;
    if (tokens->n >= context)
        return err_set(e, HEARTH_LIMIT, "the text has %zu tokens and the context only %zu: %s", tokens->n, context, advice);
    const int32_t *old = hearth_session_tokens(session);
    size_t common = 0, length = hearth_session_length(session);
    while (common < length && common < tokens->n && old[common] == tokens->ids[common]) common++;
    double start = clock_seconds();
    if (common < length && !hearth_session_rewind(session, common, e)) return false;
    bool ok = true;
    for (size_t at = common; ok && at < tokens->n && !interrupt_pending();) {
        size_t n = tokens->n - at < piece ? tokens->n - at : piece;
        if (tokens->n - common > piece) cli_progress(NULL, "reading the prompt", at - common, tokens->n - common);
        ok = hearth_session_append(session, tokens->ids + at, n, e);
        at += n;
    }
    if (tokens->n - common > piece) cli_progress(NULL, "reading the prompt", 1, 1);
    *speed = (talk_speed){.prompt_tokens = tokens->n, .reused_tokens = common, .prompt_seconds = clock_seconds() - start};
    return ok;
}

/* ---- writing ---- */

bool talk_write(talk_output *out, const char *text, size_t len) {
    if (len == 0) return true;
    if (out->copy && !buf_add(out->copy, text, len, &out->failure)) return false;
    out->no_line_end = text[len - 1] != '\n';
    if (fwrite(text, 1, len, stdout) == len && fflush(stdout) == 0) return true;
    out->broken = true;
    if (errno != EPIPE) err_set(&out->failure, HEARTH_IO, "the output cannot be written: %s", strerror(errno));
    return false;
}

bool talk_write_end(talk_output *out, err *e) {
    if (!out->broken && out->no_line_end && (putchar('\n') == EOF || fflush(stdout) != 0)) {
        out->broken = true;
        if (errno != EPIPE) err_set(&out->failure, HEARTH_IO, "the output cannot be written: %s", strerror(errno));
    }
    if (out->failure.code == HEARTH_OK) return true;
    if (e && e->code == HEARTH_OK) *e = out->failure;
    return false;
}

/* ---- answering ---- */

typedef struct answering {
    talk_output *out;
    talk_speed *speed;
    talk_on_token *on_token;
    void *user;
    double start;
} answering;

static void count_token(void *user, int32_t token, const float *logits) {
    answering *a = user;
    if (a->speed->answer_tokens++ == 0) a->speed->first_seconds = a->speed->prompt_seconds + clock_seconds() - a->start;
    if (a->on_token) a->on_token(a->user, token, logits);
}

static bool show_text(void *user, const char *text, size_t len) {
    answering *a = user;
    return talk_write(a->out, text, len) && !interrupt_pending();
}

bool talk_answer(hearth_session *session, hearth_sampler *sampler, const hearth_generate_options *options, talk_on_token *on_token,
                 void *user, talk_output *out, talk_speed *speed, hearth_finish *finish, err *e) {
    answering a = {.out = out, .speed = speed, .on_token = on_token, .user = user, .start = clock_seconds()};
    hearth_generate_options o = *options;
    o.on_text = show_text;
    o.on_token = count_token;
    o.user = &a;
    hearth_generated result;
    bool ok = hearth_generate(session, sampler, &o, &result, e);
    speed->answer_seconds = clock_seconds() - a.start;
    *finish = result.finish;
    return ok;
}

static double per_second(size_t n, double seconds) { return seconds > 0 ? (double)n / seconds : 0; }

void talk_print_speed(FILE *to, const talk_speed *s) {
    size_t computed = s->prompt_tokens - s->reused_tokens;
    fprintf(to, "prompt %zu tokens", s->prompt_tokens);
    if (s->reused_tokens) fprintf(to, " (%zu kept from before)", s->reused_tokens);
    fprintf(to, " at %.1f tokens/s, answer %zu tokens at %.1f tokens/s", per_second(computed, s->prompt_seconds), s->answer_tokens,
            per_second(s->answer_tokens, s->answer_seconds));
    if (s->answer_tokens) fprintf(to, ", first token after %.2f s", s->first_seconds);
    fputc('\n', to);
}
