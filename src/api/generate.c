/* generate.c: from sampling fields to a ticket, and waiting for it. */
#include <math.h>
#include <string.h>
#include <sys/random.h>

#include "api/inner.h"

void sampling_init(sampling *s, const api *a) {
    memset(s, 0, sizeof *s);
    s->request = loop_request_defaults();
    s->request.sampler = a->o.sampler;
    s->n = 1;
    s->stop_name = "stop";
    s->max_tokens = -1;
    s->seed = INT64_MIN;
    s->top_k = a->o.sampler.top_k;
    hearth_sampler_options *o = &s->request.sampler;
    o->penalty_last_n = -1;
    const field table[] = {
        {"n", FIELD_INT, &s->n, 1, 128, NULL},
        {"temperature", FIELD_FLOAT, &o->temperature, 0, 2, NULL},
        {"top_p", FIELD_FLOAT, &o->top_p, 0, 1, NULL},
        {"presence_penalty", FIELD_FLOAT, &o->presence_penalty, -2, 2, NULL},
        {"frequency_penalty", FIELD_FLOAT, &o->frequency_penalty, -2, 2, NULL},
        {"logit_bias", FIELD_JSON, &s->logit_bias, 0, 0, NULL},
        {"stop", FIELD_JSON, &s->stop, 0, 0, NULL},
        {"seed", FIELD_INT, &s->seed, 0, 0, NULL},
        {"user", FIELD_TEXT, &s->user, 0, 0, NULL},
        {"session", FIELD_TEXT, &s->session, 0, 0, NULL},
        {"top_k", FIELD_INT, &s->top_k, 0, 1e6, NULL},
        {"min_p", FIELD_FLOAT, &o->min_p, 0, 1, NULL},
        {"typical_p", FIELD_FLOAT, &o->typical_p, 0, 1, NULL},
        {"repeat_penalty", FIELD_FLOAT, &o->repeat_penalty, 0.01, 100, NULL},
        {"dry_multiplier", FIELD_FLOAT, &o->dry_multiplier, 0, 100, NULL},
        {"dry_base", FIELD_FLOAT, &o->dry_base, 1, 100, NULL},
        {"response_format", FIELD_JSON, &s->response_format, 0, 0, NULL},
        {"json_schema", FIELD_JSON, &s->json_schema, 0, 0, NULL},
        {"grammar", FIELD_TEXT, &s->gbnf, 0, 0, NULL},
        {"regex", FIELD_TEXT, &s->regex, 0, 0, NULL},
        {"ignore_eos", FIELD_BOOL, &s->ignore_eos, 0, 0, NULL},
        {"priority", FIELD_INT, &s->priority, -1000, 1000, NULL},
        {"timeout", FIELD_FLOAT, &s->limit_s, 0.001, 1e6, NULL},
    };
    _Static_assert(sizeof table < sizeof s->table, "the table ends with a NULL name");
    memcpy(s->table, table, sizeof table);
}

void sampling_free(sampling *s) {
    hearth_grammar_free(s->grammar);
    agent_turn_drop(s->turn);
}

static bool add_stop(sampling *s, int *n, const json_t *text, refusal *f) {
    if (*n >= MOST_STOPS) return refuse(f, s->stop_name, "'%s' may hold %d strings at most.", s->stop_name, MOST_STOPS);
    if (!json_is_string(text) || json_string_length(text) == 0 || strlen(json_string_value(text)) != json_string_length(text))
        return refuse(f, s->stop_name, "'%s' must be a string or an array of strings, none of them empty or with a NUL in it.", s->stop_name);
    s->stops[(*n)++] = json_string_value(text);
    return true;
}

static bool read_stops(sampling *s, refusal *f) {
    int n = 0;
    if (json_is_array(s->stop)) {
        for (size_t i = 0; i < json_array_size(s->stop); i++)
            if (!add_stop(s, &n, json_array_get(s->stop, i), f)) return false;
    } else if (s->stop && !add_stop(s, &n, s->stop, f)) {
        return false;
    }
    s->request.stop = s->stops;
    return true;
}

static bool read_bias(sampling *s, const api *a, refusal *f) {
    if (!s->logit_bias) return true;
    if (!json_is_object(s->logit_bias) || json_object_size(s->logit_bias) > MOST_BIAS)
        return refuse(f, "logit_bias", "'logit_bias' must be an object with at most %d token ids and their biases.", MOST_BIAS);
    size_t n = 0;
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)s->logit_bias, name, v) {
        char *end;
        long token = strtol(name, &end, 10);
        if (!*name || *end || token < 0 || token >= a->info.n_vocab)
            return refuse(f, "logit_bias", "'logit_bias' names a token that is not from 0 to %d.", a->info.n_vocab - 1);
        double bias = json_number_value(v);
        if (!json_is_number(v) || !(fabs(bias) <= 100)) return refuse(f, "logit_bias", "The biases in 'logit_bias' must be numbers from -100 to 100.");
        /* The ends of the range mean never and only. */
        s->bias[n++] = (hearth_logit_bias){.token = (int32_t)token, .bias = bias <= -100 ? -INFINITY : bias >= 100 ? 1e6f : (float)bias};
    }
    s->request.sampler.logit_bias = s->bias;
    s->request.sampler.n_logit_bias = n;
    return true;
}

static uint64_t hash(const char *text) {
    uint64_t h = 0xcbf29ce484222325u;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return h;
}

bool sampling_finish(sampling *s, api *a, const http_request *r, refusal *f) {
    hearth_sampler_options *o = &s->request.sampler;
    if (!read_stops(s, f) || !read_bias(s, a, f) || !shape_fields(a, s, f)) return false;
    uint64_t random = 0;
    if (s->seed != INT64_MIN) random = (uint64_t)s->seed;
    else if (getrandom(&random, sizeof random, 0) != sizeof random) random = clock_ns();
    o->seed = random;
    o->top_k = (int)s->top_k;
    s->request.n = (int)s->n;
    s->request.max_tokens = s->max_tokens > INT32_MAX ? -1 : (int)s->max_tokens;
    s->request.ignore_end = s->ignore_eos;
    s->request.priority = (int)s->priority;
    s->request.shown = a->shown;
    s->request.n_shown = a->n_shown;
    /* The APIs' penalties count what was sampled; those of the repeat and DRY kind look at all of the text. */
    s->request.penalise_prompt = o->repeat_penalty != 1 || o->dry_multiplier > 0;
    s->request.tenant = http_tenant(r);
    if (!s->agent) s->agent = http_header(r, "X-Agent");
    if (!s->agent) s->agent = s->session;
    s->agent_only_asked = !s->agent && s->user;
    if (!s->agent) s->agent = s->user;
    s->request.owner = s->agent ? hash(s->agent) : 0;
    double limit = s->limit_s;
    if (a->o.limit_s > 0 && (limit == 0 || limit > a->o.limit_s)) limit = a->o.limit_s;
    s->request.limit_ns = (uint64_t)(limit * 1e9);
    return true;
}

void refuse_ticket(refusal *f, const err *e) {
    switch (e->code) {
    case HEARTH_LIMIT: refuse_with(f, 504, "timeout", "", "%s", e->text); break;
    case HEARTH_CANCELLED: refuse_with(f, 503, NULL, "", "%s", e->text); break;
    case HEARTH_ARGUMENT: /* demands that contradict each other, which shows only on the way */
    case HEARTH_UNSUPPORTED: refuse_with(f, 400, NULL, "", "%s", e->text); break;
    default: refuse_with(f, 500, NULL, "", "%s", e->text); break;
    }
}

loop_ticket *sampling_submit(sampling *s, const api *a, const token_run *prompt, refusal *f) {
    s->request.tokens = prompt->ids;
    s->request.n_tokens = prompt->n;
    if (prompt->n >= (size_t)a->info.n_context + s->request.embed) {
        refuse_with(f, 400, "context_length_exceeded", "messages",
                    "This model's maximum context length is %d tokens, but the prompt has %zu: shorten it, or start the server with a larger --context.",
                    a->info.n_context, prompt->n);
        return NULL;
    }
    err e = {0};
    if (s->turn) {
        s->request.ended = agent_turn_ended;
        s->request.ended_user = s->turn;
        s->request.loaded = agent_turn_loaded(s->turn);
        agent_turn_begin(s->turn);
    }
    loop_ticket *t = loop_submit(a->loop, &s->request, &e);
    if (t) return t;
    if (s->turn) agent_turn_take_back(s->turn);
    if (e.code == HEARTH_LIMIT) refuse_with(f, 429, "rate_limit_exceeded", "", "%s", e.text);
    else f->e = e;
    return NULL;
}

void note_usage(http_request *r, const loop_usage *u) {
    http_charge(r, (double)u->prompt_tokens + (double)u->completion_tokens);
    http_note(r, "prompt_tokens", "%d", u->prompt_tokens);
    http_note(r, "cached_tokens", "%d", u->cached_tokens);
    http_note(r, "completion_tokens", "%d", u->completion_tokens);
    if (u->first_ns) http_note(r, "first_token_ms", "%.1f", (double)u->first_ns * 1e-6);
}

static bool add_piece(const api *a, const loop_piece *p, logprob_json *each, int n_top, gathered *g, err *e) {
    if (!buf_add(&g->text, p->text, p->len, e)) return false;
    for (size_t i = 0; each && i < p->n_tokens; i++) {
        if (!g->logprobs) g->logprobs = json_array();
        if (json_array_append_new(g->logprobs, each(a, &p->tokens[i], n_top)) != 0) return err_nomem(e, 0);
    }
    g->finish = p->finish;
    if (p->stop) g->stop = p->stop;
    return true;
}

bool gather(const api *a, http_request *r, loop_ticket *t, int n, logprob_json *each, int n_top, gathered *out, refusal *f) {
    for (int i = 0; i < n; i++) out[i] = (gathered){.finish = LOOP_RUNNING};
    for (;;) {
        loop_piece piece;
        err e = {0};
        loop_news news = loop_next(t, API_LOOK_NS, &piece, &e);
        if (news == LOOP_PIECE && !add_piece(a, &piece, each, n_top, &out[piece.choice], &e)) news = LOOP_FAILED;
        if (news == LOOP_DONE) return true;
        if (news == LOOP_FAILED) {
            refuse_ticket(f, &e);
            return false;
        }
        if (news == LOOP_IDLE && http_gone(r)) return false;
    }
}

void gathered_free(gathered *g, int n) {
    for (int i = 0; i < n; i++) {
        buf_free(&g[i].text);
        json_decref(g[i].logprobs);
    }
}

bool event_data(buf *out, const char *event, json_t *json) {
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    bool ok = text && (!event || (buf_adds(out, "event: ", NULL) && buf_adds(out, event, NULL) && buf_addc(out, '\n', NULL))) &&
              buf_adds(out, "data: ", NULL) && buf_adds(out, text, NULL) && buf_adds(out, "\n\n", NULL);
    free(text);
    return ok;
}

json_t *openai_usage(const loop_usage *u) {
    return json_pack("{s:i, s:i, s:i, s:{s:i}}", "prompt_tokens", u->prompt_tokens, "completion_tokens", u->completion_tokens, "total_tokens",
                     u->prompt_tokens + u->completion_tokens, "prompt_tokens_details", "cached_tokens", u->cached_tokens);
}

void stream_failed(buf *out, http_request *r, api_style style, const err *e) {
    refusal f = {0};
    refuse_ticket(&f, e);
    event_data(out, style == API_ANTHROPIC ? "error" : NULL, api_error_json(style, &f));
    http_note(r, "error", "%s", e->text);
}

json_t *timings_json(const loop_usage *u) {
    double writing = u->total_ns > u->first_ns ? (double)(u->total_ns - u->first_ns) * 1e-9 : 0;
    double each = writing > 0 && u->completion_tokens > 1 ? (u->completion_tokens - 1) / writing : 0;
    return json_pack("{s:f, s:f, s:f, s:f}", "queue_ms", (double)u->queued_ns * 1e-6, "first_token_ms", (double)u->first_ns * 1e-6, "total_ms", (double)u->total_ns * 1e-6,
                     "tokens_per_second", each);
}

static json_t *one_logprob(const api *a, int32_t token, float logprob) {
    size_t len = 0;
    const char *bytes = hearth_token_bytes(a->engine, token, true, &len);
    json_t *list = json_array();
    for (size_t i = 0; bytes && i < len; i++) json_array_append_new(list, json_integer((unsigned char)bytes[i]));
    /* JSON has no infinity; this is what OpenAI writes for the impossible. */
    double p = isfinite(logprob) ? (double)logprob : -9999.0;
    return json_pack("{s:o, s:f, s:o}", "token", text_json(bytes ? bytes : "", len), "logprob", p, "bytes", list);
}

json_t *openai_logprob(const api *a, const loop_token *t, int n_top) {
    json_t *one = one_logprob(a, t->token, t->logprob), *top = json_array();
    for (int i = 0; i < n_top && t->top[i].token != HEARTH_TOKEN_NONE; i++) json_array_append_new(top, one_logprob(a, t->top[i].token, t->top[i].logprob));
    json_object_set_new(one, "top_logprobs", top);
    return one;
}
