/* generate.c: the loop that picks tokens and gives out their text. */
#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/stop.h"

/* One call of hearth_generate. */
typedef struct generation {
    const hearth_generate_options *o;
    const hearth_engine *engine;
    hearth_session *session;
    hearth_sampler *sampler;
    stop_filter filter;
    buf text; /* what is to be given out next */
} generation;

hearth_generate_options hearth_generate_defaults(void) { return (hearth_generate_options){.max_tokens = -1}; }

/* Gives out the text that is there, also when there is none: the caller may want to stop. */
static bool give_out(generation *g) {
    bool go_on = !g->o->on_text || g->o->on_text(g->o->user, g->text.data ? g->text.data : "", g->text.len);
    g->text.len = 0;
    return go_on;
}

static bool add_text(generation *g, int32_t token, err *e) {
    size_t len = 0;
    const char *bytes = hearth_token_bytes(g->engine, token, g->o->show_special, &len);
    return !bytes || stop_add(&g->filter, bytes, len, &g->text, e);
}

/* Picks one token, gives out its text and keeps it in the session. *more becomes false when the answer ends here, for the reason in *finish. */
static bool step(generation *g, hearth_finish *finish, bool *more, err *e) {
    const float *logits = hearth_session_logits(g->session);
    if (!logits && hearth_session_length(g->session) == 0)
        return err_set(e, HEARTH_ARGUMENT, "there is nothing to continue: append the prompt to the session first");
    if (!logits) return err_set(e, HEARTH_MEMORY, "the last token of the session could not be computed again");
    int32_t token = hearth_sampler_pick(g->sampler, logits, e);
    if (token < 0) return false;
    if (g->o->on_token) g->o->on_token(g->o->user, token, logits);
    *more = false;
    bool ends = hearth_token_ends(g->engine, token) && !g->o->ignore_end;
    if (!ends || g->o->show_special) {
        if (!add_text(g, token, e)) return false;
    }
    if (g->filter.found || ends) {
        *finish = g->filter.found ? HEARTH_FINISH_STOP : HEARTH_FINISH_END;
        return true;
    }
    *finish = HEARTH_FINISH_CALLER;
    *more = give_out(g);
    return hearth_session_append(g->session, &token, 1, e) && hearth_sampler_accept(g->sampler, token, e);
}

static bool generate(generation *g, size_t context, hearth_generated *result, err *e) {
    const size_t start = hearth_session_length(g->session);
    result->finish = HEARTH_FINISH_LENGTH;
    for (bool more = true; more;) {
        size_t length = hearth_session_length(g->session);
        /* A token is picked only when there is room to keep it, so that a later call can go on from it. */
        if (length >= context || (g->o->max_tokens >= 0 && length - start >= (size_t)g->o->max_tokens)) {
            result->finish = HEARTH_FINISH_LENGTH;
            break;
        }
        bool ok = step(g, &result->finish, &more, e);
        result->n_tokens = (int)(hearth_session_length(g->session) - start);
        if (!ok) return false;
    }
    if (!g->filter.found && !stop_end(&g->filter, &g->text, e)) return false;
    if (g->text.len) give_out(g);
    return true;
}

bool hearth_generate(hearth_session *session, hearth_sampler *sampler, const hearth_generate_options *options, hearth_generated *result,
                     hearth_error *error) {
    const hearth_generate_options usual = hearth_generate_defaults();
    err local = {0}, *e = error ? error : &local;
    err_clear(e);
    hearth_generated unused;
    if (!result) result = &unused;
    *result = (hearth_generated){.finish = HEARTH_FINISH_LENGTH};
    generation g = {.o = options ? options : &usual, .engine = session->engine, .session = session, .sampler = sampler};
    if (g.o->max_tokens < -1) return err_set(e, HEARTH_ARGUMENT, "max_tokens must be -1 or more, not %d", g.o->max_tokens);
    if (sampler_engine(sampler) != g.engine) return err_set(e, HEARTH_ARGUMENT, "the sampler was made for another engine than the session");
    if (g.o->ignore_end && sampler_has_grammar(sampler))
        return err_set(e, HEARTH_ARGUMENT, "a grammar decides where the answer ends, so ignore_end cannot be combined with it");
    bool ok = stop_open(&g.filter, g.o->stop, e) &&
              sampler_sync(sampler, hearth_session_tokens(session), hearth_session_length(session), e) &&
              generate(&g, (size_t)g.engine->n_context, result, e);
    stop_close(&g.filter);
    buf_free(&g.text);
    /* A turn is over: it is saved behind the work. Should memory be short, the session still knows that it has changed. */
    if (session->changed) session_save(session, NULL);
    return ok;
}
