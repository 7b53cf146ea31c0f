/* embeddings.c: /v1/embeddings. */
#include <math.h>
#include <sodium.h>
#include <string.h>

#include "api/inner.h"

/* MOST_INPUTS is OpenAI's limit; IN_FLIGHT of them are in the loop at a time, so that others have their turn. */
enum { MOST_INPUTS = 2048, IN_FLIGHT = 8 };

typedef struct embedding {
    api *a;
    const json_t *input;
    const char *model, *format;
    int64_t dimensions;
    sampling s;
    size_t n_inputs;
    loop_ticket *flying[IN_FLIGHT]; /* a ring: inputs done .. sent - 1 */
    size_t sent, done;
    int64_t tokens;
    float *vector;
    json_t *data;
} embedding;

static bool is_token(const json_t *v) { return json_is_integer(v); }

static bool read_request(embedding *m, const json_t *body, const http_request *r, refusal *f) {
    sampling_init(&m->s, m->a);
    m->dimensions = m->a->info.n_embd;
    const field table[] = {
        {"input", FIELD_JSON, &m->input, 0, 0, NULL},
        {"model", FIELD_TEXT, &m->model, 0, 0, NULL},
        {"encoding_format", FIELD_TEXT, &m->format, 0, 0, NULL},
        {"dimensions", FIELD_INT, &m->dimensions, 1, m->a->info.n_embd, NULL},
        {"user", FIELD_TEXT, &m->s.user, 0, 0, NULL},
        {"priority", FIELD_INT, &m->s.priority, -1000, 1000, NULL},
        {"timeout", FIELD_FLOAT, &m->s.limit_s, 0.001, 1e6, NULL},
        {NULL, FIELD_BOOL, NULL, 0, 0, NULL},
    };
    if (!fields_read(body, table, NULL, f) || !model_is_known(m->a, m->model, f)) return false;
    if (!m->format) m->format = "float";
    if (strcmp(m->format, "float") != 0 && strcmp(m->format, "base64") != 0) return refuse(f, "encoding_format", "'encoding_format' must be 'float' or 'base64'.");
    bool list = json_is_array(m->input) && !is_token(json_array_get(m->input, 0));
    m->n_inputs = list ? json_array_size(m->input) : 1;
    if (!m->input || m->n_inputs == 0 || m->n_inputs > MOST_INPUTS)
        return refuse(f, "input", "'input' must be a string, an array of token ids, or an array of 1 to %d of these.", MOST_INPUTS);
    if (!sampling_finish(&m->s, m->a, r, f)) return false;
    m->s.request.embed = true;
    m->vector = mem_alloc((size_t)m->a->info.n_embd, sizeof *m->vector, &f->e);
    m->data = json_array();
    return m->vector != NULL;
}

/* The tokens of one input: a text, or token ids as they are. */
static bool input_tokens(const embedding *m, const json_t *input, token_run *out, refusal *f) {
    if (json_is_string(input) && json_string_length(input) > 0)
        return text_tokenize(m->a, json_string_value(input), json_string_length(input), HEARTH_ADD_BOS | HEARTH_ADD_EOS, out, f);
    if (!json_is_array(input) || json_array_size(input) == 0) return refuse(f, "input", "Each text in 'input' must be a string that is not empty, or an array of token ids.");
    out->n = json_array_size(input);
    out->ids = mem_alloc(out->n, sizeof *out->ids, &f->e);
    for (size_t i = 0; out->ids && i < out->n; i++) {
        const json_t *id = json_array_get(input, i);
        if (!is_token(id) || json_integer_value(id) < 0 || json_integer_value(id) >= m->a->info.n_vocab)
            return refuse(f, "input", "Token ids in 'input' must be whole numbers from 0 to %d.", m->a->info.n_vocab - 1);
        out->ids[i] = (int32_t)json_integer_value(id);
    }
    return out->ids != NULL;
}

static bool send_next(embedding *m, refusal *f) {
    const json_t *input = json_is_array(m->input) && !is_token(json_array_get(m->input, 0)) ? json_array_get(m->input, m->sent) : m->input;
    token_run run = {0};
    bool ok = input_tokens(m, input, &run, f);
    if (ok && run.n > (size_t)m->a->info.n_context)
        ok = refuse_with(f, 400, "context_length_exceeded", "input", "This model's maximum context length is %d tokens, but input %zu has %zu.", m->a->info.n_context, m->sent,
                         run.n);
    if (ok) {
        loop_ticket *t = sampling_submit(&m->s, m->a, &run, f);
        if (t) m->flying[m->sent++ % IN_FLIGHT] = t;
        else ok = false;
    }
    mem_free(run.ids);
    return ok;
}

static json_t *vector_json(const embedding *m, const float *full) {
    size_t n = (size_t)m->dimensions;
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)full[i] * full[i];
    for (size_t i = 0; i < n; i++) m->vector[i] = sum > 0 ? (float)(full[i] / sqrt(sum)) : 0;
    if (strcmp(m->format, "base64") == 0) {
        size_t cap = sodium_base64_encoded_len(n * sizeof *m->vector, sodium_base64_VARIANT_ORIGINAL);
        char *text = mem_alloc(cap, 1, NULL);
        if (!text) return NULL;
        sodium_bin2base64(text, cap, (const unsigned char *)m->vector, n * sizeof *m->vector, sodium_base64_VARIANT_ORIGINAL);
        json_t *s = json_string(text);
        mem_free(text);
        return s;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_real((double)m->vector[i]));
    return list;
}

static bool take_next(embedding *m, http_request *r, refusal *f) {
    loop_ticket *t = m->flying[m->done % IN_FLIGHT];
    gathered g = {0};
    bool ok = gather(m->a, r, t, 1, NULL, 0, &g, f);
    gathered_free(&g, 1);
    if (!ok) return false;
    m->tokens += loop_ticket_usage(t).prompt_tokens;
    json_t *vector = vector_json(m, loop_ticket_vector(t));
    if (!vector || json_array_append_new(m->data, json_pack("{s:s, s:I, s:o}", "object", "embedding", "index", (json_int_t)m->done, "embedding", vector)) != 0)
        return err_nomem(&f->e, 0);
    loop_ticket_free(t);
    m->done++;
    return true;
}

/* Keeps some inputs in the loop until all are done. A full queue is only an error when nothing of ours will leave it. */
static bool embed_all(embedding *m, http_request *r, refusal *f) {
    while (m->done < m->n_inputs) {
        bool full = m->sent - m->done == IN_FLIGHT;
        if (!full && m->sent < m->n_inputs) {
            refusal now = {0};
            if (send_next(m, &now)) continue;
            if (refusal_status(&now) != 429 || m->sent == m->done) {
                *f = now;
                return false;
            }
        }
        if (!take_next(m, r, f)) return false;
    }
    return true;
}

void route_embeddings(api *a, http_request *r) {
    refusal f = {0};
    json_t *body = api_body(r, &f);
    embedding *m = mem_zalloc(1, sizeof *m, &f.e);
    if (m) m->a = a;
    bool ok = body && m && read_request(m, body, r, &f) && embed_all(m, r, &f);
    if (ok) {
        http_note(r, "prompt_tokens", "%lld", (long long)m->tokens);
        api_reply(a, r, 200, json_pack("{s:s, s:O, s:s, s:{s:I, s:I}}", "object", "list", "data", m->data, "model", a->o.model, "usage", "prompt_tokens",
                                       (json_int_t)m->tokens, "total_tokens", (json_int_t)m->tokens));
    } else if (f.e.code != HEARTH_OK) {
        api_refuse(a, r, API_OPENAI, &f);
    } else {
        http_note(r, "cancelled", "1");
    }
    for (size_t i = m ? m->done : 0; m && i < m->sent; i++) loop_ticket_free(m->flying[i % IN_FLIGHT]);
    if (m) {
        sampling_free(&m->s);
        mem_free(m->vector);
        json_decref(m->data);
    }
    mem_free(m);
    json_decref(body);
}
