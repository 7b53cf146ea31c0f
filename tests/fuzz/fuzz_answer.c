/* fuzz_answer.c: what a model writes, cut into thoughts, text and calls. The first byte picks the kind of thoughts and whether there are tools, the second how the text is cut
 * into pieces. Whatever the pieces, the same must come out. */
#include <stdlib.h>
#include <string.h>

#include "api/inner.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct heard {
    buf log;
    tool_event_kind last;
} heard;

static bool hear(void *user, const tool_event *e) {
    heard *h = user;
    if (e->text[e->len] != 0) abort();
    bool words = e->kind == TOOL_TEXT || e->kind == TOOL_THOUGHT || e->kind == TOOL_ARGUMENTS;
    if (words && e->len == 0) abort();
    if (h->log.len == 0 || !words || h->last != e->kind) buf_addf(&h->log, NULL, "\n%d %s: ", (int)e->kind, e->kind == TOOL_CALL ? e->name : "");
    h->last = e->kind;
    return buf_add(&h->log, e->text, e->len, NULL);
}

static buf run(const thinking *kind, bool inside, bool tools, const uint8_t *text, size_t len, unsigned step) {
    heard h = {0};
    answer *a = answer_new(kind, inside, tools, NULL);
    for (size_t at = 0, n; at < len; at += n) {
        n = step ? 1 + (at * 7 + step) % step : len;
        if (n > len - at) n = len - at;
        if (!answer_add(a, (const char *)text + at, n, hear, &h, NULL)) abort();
    }
    if (!answer_end(a, hear, &h, NULL)) abort();
    answer_free(a);
    return h.log;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const templates[] = {"", "<think>", "[THINK]", "<|channel|><|message|>", "<think><response>"};
    if (size < 2) return 0;
    const thinking *kind = thinking_find(templates[data[0] % 4 == 2 && data[1] & 128 ? 4 : data[0] % 4]);
    bool inside = data[0] & 4, tools = data[0] & 8;
    buf whole = run(kind, kind && inside && data[0] % 4 < 3, tools, data + 2, size - 2, 0);
    buf cut = run(kind, kind && inside && data[0] % 4 < 3, tools, data + 2, size - 2, 1 + data[1] % 16);
    if (whole.len != cut.len || (whole.len && memcmp(whole.data, cut.data, whole.len) != 0)) abort();
    buf_free(&whole);
    buf_free(&cut);
    return 0;
}
