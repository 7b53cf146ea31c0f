/* fuzz_api.c: bodies of requests, to every route that takes one, with a tiny model behind them. The first byte of an input picks the route. A reply of 500 is a finding. */
#include "unit/tiny_model.h"

#include "api/api.h"
#include "fuzz/loopback.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const paths[] = {"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/v1/embeddings", "/v1/messages/count_tokens",
                                    "/v1/responses/input_tokens", "/tokenize", "/detokenize", "/apply-template"};
static const char template[] = "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}{{ m.role[0] }}{{ m.content }}{{ m.reasoning_content }}"
                               "{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}</s>{% endfor %}{% if enable_thinking %}<think>{% endif %}";

static void serve(void) {
    err e = {0};
    tiny m = make_llama();
    m.keys[m.n_keys++] = (key){.name = "tokenizer.chat_template", .type = GGUF_STRING, .text = template};
    for (int i = 0; i < m.n_keys; i++)
        if (strcmp(m.keys[i].name, "llama.context_length") == 0) m.keys[i].number = 512;
    hearth_engine_options o = hearth_engine_defaults();
    o.cpu = "ref";
    o.threads = 1;
    o.cache = false;
    o.store = false;
    o.kv_memory = 4 << 20;
    hearth_engine *engine = hearth_engine_open(write_tiny(&m, false, NULL), &o, &e);
    loop_options lo = loop_defaults();
    loop *l = engine ? loop_new(engine, &lo, &e) : NULL;
    static api_options ao = {.model = "m", .limit_s = 20};
    ao.sampler = hearth_sampler_defaults();
    api *a = l ? api_new(engine, l, &ao, &e) : NULL;
    http_options ho = http_defaults();
    ho.unix_path = loopback_path();
    ho.max_body = 1 << 16;
    http_server *s = a ? http_start(&ho, api_handle, a, &e) : NULL;
    if (!s) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool serving;
    if (!serving) serve();
    serving = true;
    if (size < 1) return 0;
    char head[256];
    int n = snprintf(head, sizeof head, "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
                     paths[data[0] % (sizeof paths / sizeof *paths)], size - 1);
    if (loopback(head, (size_t)n, data + 1, size - 1) == 500) abort();
    return 0;
}
