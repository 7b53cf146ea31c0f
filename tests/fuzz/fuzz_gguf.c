/* fuzz_gguf.c: model files, from the parser to the first token. An input whose first byte is even is a file; others are edits of a small model that works. */
#include "unit/tiny_model.h"

#include "fuzz/edits.h"
#include "hearth.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static buf sound[2];

static void make_sound(void) {
    tiny m[2] = {make_llama(), make_deepseek()};
    for (int i = 0; i < 2; i++) sound[i] = slurp(write_tiny(&m[i], false, NULL));
}

static void use(const char *path) {
    hearth_error e = {0};
    hearth_engine_options o = hearth_engine_defaults();
    o.cpu = "ref";
    o.threads = 1;
    o.cache = false;
    o.store = false;
    o.kv_memory = 0;
    hearth_engine *engine = hearth_engine_open(path, &o, &e);
    if (!engine) {
        if (e.code == HEARTH_OK) abort(); /* a failure says why */
        return;
    }
    int32_t tokens[64];
    int64_t n = hearth_tokenize(engine, "a w260 \xC3\xA9<s>", 12, HEARTH_PARSE_SPECIAL | HEARTH_ADD_BOS | HEARTH_ADD_EOS, tokens, 64, &e);
    for (int64_t i = 0; i < n && i < 64; i++) hearth_token_bytes(engine, tokens[i], true, &(size_t){0});
    /* What loads computes, as far as that is small. */
    hearth_model_info info = hearth_engine_info(engine);
    hearth_session *s = info.n_parameters < 1000000 && info.n_context <= 4096 ? hearth_session_new(engine, &e) : NULL;
    if (s && n > 0 && n <= 8) hearth_session_append(s, tokens, (size_t)n, &e);
    hearth_session_free(s);
    hearth_engine_close(engine);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!sound[0].data) make_sound();
    if (size < 1) return 0;
    if (data[0] % 2 == 0) {
        use(memory_file(data + 1, size - 1));
        return 0;
    }
    const buf *from = &sound[data[0] / 2 % 2];
    buf copy = {0};
    if (!buf_add(&copy, from->data, from->len, NULL)) abort();
    apply_edits(&copy, data + 1, size - 1);
    use(memory_file(copy.data, copy.len));
    buf_free(&copy);
    return 0;
}
