/* name.h: the names of blocks. A name is a keyed hash of the parent's name and the block's tokens; the first parent is the root, a hash of the model's
 * fingerprint, the layout of keys and values and how positions are rotated. So equal names mean equal prefixes of the same model in the same format, and the
 * key, which is the tenant's, keeps tenants apart: without it nobody can make or guess another tenant's name. */
#ifndef KV_NAME_H
#define KV_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct kv_name {
    uint8_t bytes[32];
} kv_name;

/* Where a conversation's names start. */
typedef struct kv_chain {
    kv_name key, root;
} kv_chain;

/* tenant: any text, NULL for none. model: the fingerprint's bytes. format: what kv_layout_describe says. variant: 1 when positions are rotated with the
 * frequencies for long texts. */
kv_chain kv_chain_make(const char *tenant, const void *model, size_t model_bytes, const char *format, int variant);
kv_name kv_name_next(const kv_chain *chain, const kv_name *parent, const int32_t *tokens, size_t n);

static inline bool kv_name_equal(const kv_name *a, const kv_name *b) { return memcmp(a, b, sizeof *a) == 0; }
void kv_name_text(const kv_name *name, char out[65]);
bool kv_name_parse(const char *text, size_t len, kv_name *out);

#endif
