#include "engine/retoken.h"

#include <string.h>

#include "engine/engine.h"

static bool is_control(const hearth_engine *engine, int32_t token) {
    size_t shown = 0, all = 0;
    hearth_token_bytes(engine, token, false, &shown);
    hearth_token_bytes(engine, token, true, &all);
    return shown == 0 && all > 0;
}

static bool starts_with_control(const hearth_engine *engine, const char *text, size_t len, err *e) {
    token_list first = {0};
    /* The longest name of a control token is far shorter. */
    bool is = len > 0 && tokenizer_encode(engine->tok, text, len < 256 ? len : 256, true, &first, e) && first.n > 0 && is_control(engine, first.ids[0]);
    token_list_free(&first);
    return is;
}

bool retoken(const hearth_engine *engine, const int32_t *known, size_t n_known, const char *text, size_t len, token_list *out, err *e) {
    size_t at = 0, border = 0, border_at = 0, i = 0;
    /* Only before a control token is a border between tokens certain. */
    for (; i < n_known; i++) {
        size_t size = 0;
        const char *bytes = hearth_token_bytes(engine, known[i], true, &size);
        if (!bytes || size > len - at || memcmp(text + at, bytes, size) != 0) break;
        if (is_control(engine, known[i])) border = i, border_at = at;
        at += size;
    }
    if (i == n_known && n_known > 0 && starts_with_control(engine, text + at, len - at, e)) border = n_known, border_at = at;
    bool ok = true;
    for (size_t k = 0; ok && k < border; k++) ok = token_list_add(out, known[k], e);
    return ok && tokenizer_encode(engine->tok, text + border_at, len - border_at, true, out, e);
}
