/* write.h: writes a GGUF file (version 3), front to back, whole or not at all.
 *
 * First the metadata and the list of tensors are declared, then gguf_writer_begin writes them, then the bytes of the tensors follow in
 * the order of their declaration, in pieces of any size; the padding between them is the writer's business. */
#ifndef GGUF_WRITE_H
#define GGUF_WRITE_H

#include "gguf/gguf.h"

typedef struct gguf_writer gguf_writer;

/* alignment is a power of two, at least 8. When it is not 32, the entry general.alignment must be declared with the same number. */
gguf_writer *gguf_writer_new(uint32_t alignment, err *e);
/* Closes; what was not committed is gone. Accepts NULL. */
void gguf_writer_free(gguf_writer *w);

/* Keys must not repeat. */
bool gguf_writer_copy(gguf_writer *w, const gguf_kv *kv, err *e);
bool gguf_writer_u32(gguf_writer *w, const char *key, uint32_t value, err *e);
/* A tensor of n_bytes, which must be what its type and sizes come to. */
bool gguf_writer_tensor(gguf_writer *w, const gguf_tensor *shape, int type, uint64_t n_bytes, err *e);

bool gguf_writer_begin(gguf_writer *w, const char *path, err *e);
bool gguf_writer_data(gguf_writer *w, const void *data, size_t len, err *e);
/* Refuses when data is missing. *bytes (may be NULL) gets the size of the file. */
bool gguf_writer_commit(gguf_writer *w, uint64_t *bytes, err *e);

#endif
