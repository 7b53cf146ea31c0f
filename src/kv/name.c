#include "kv/name.h"

#include <sodium.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are hashed and stored as they lie in memory");

static void add(crypto_generichash_state *h, const void *data, size_t len) {
    uint64_t n = len; /* the length first, so that parts cannot flow into each other */
    crypto_generichash_update(h, (const unsigned char *)&n, sizeof n);
    crypto_generichash_update(h, data, len);
}

kv_chain kv_chain_make(const char *tenant, const void *model, size_t model_bytes, const char *format, int variant) {
    kv_chain c;
    crypto_generichash_state h;
    crypto_generichash_init(&h, NULL, 0, sizeof c.key);
    add(&h, "hearth tenant", 13);
    add(&h, tenant ? tenant : "", tenant ? strlen(tenant) : 0);
    crypto_generichash_final(&h, c.key.bytes, sizeof c.key);
    crypto_generichash_init(&h, c.key.bytes, sizeof c.key, sizeof c.root);
    add(&h, "hearth kv 1", 11);
    add(&h, model, model_bytes);
    add(&h, format, strlen(format));
    add(&h, &variant, sizeof variant);
    crypto_generichash_final(&h, c.root.bytes, sizeof c.root);
    return c;
}

kv_name kv_name_next(const kv_chain *chain, const kv_name *parent, const int32_t *tokens, size_t n) {
    kv_name out;
    crypto_generichash_state h;
    crypto_generichash_init(&h, chain->key.bytes, sizeof chain->key, sizeof out);
    crypto_generichash_update(&h, parent->bytes, sizeof *parent);
    crypto_generichash_update(&h, (const unsigned char *)tokens, n * sizeof *tokens);
    crypto_generichash_final(&h, out.bytes, sizeof out);
    return out;
}

void kv_name_text(const kv_name *name, char out[65]) { sodium_bin2hex(out, 65, name->bytes, sizeof *name); }

bool kv_name_parse(const char *text, size_t len, kv_name *out) {
    if (len != 64) return false;
    for (size_t i = 0; i < len; i++)
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f'))) return false;
    size_t n = 0;
    return sodium_hex2bin(out->bytes, sizeof *out, text, len, NULL, &n, NULL) == 0 && n == sizeof *out;
}
