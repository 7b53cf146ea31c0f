/* fuzz_store.c: the files of agents and blocks, as edits of sound ones, with the checksum made right again (or not: an odd first byte). */
#include "unit/tiny_model.h"

#include <dirent.h>
#include <xxhash.h>

#include "engine/engine.h"
#include "fuzz/edits.h"
#include "store/agent.h"
#include "store/blockfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static hearth_engine *engine;
static buf files[8];
static shelf_key keys[8]; /* of those that are blocks */
static int n_files;

static void collect(const char *folder) {
    DIR *d = opendir(folder);
    for (struct dirent *f; d && (f = readdir(d)) && n_files < 8;) {
        char path[1024];
        if (f->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
        if (f->d_type == DT_DIR) collect(path);
        else if (strstr(f->d_name, ".safetensors")) {
            kv_name_parse(f->d_name, 64, &keys[n_files].name);
            files[n_files++] = slurp(path);
        }
    }
    if (d) closedir(d);
}

static void make_files(void) {
    tiny m = make_llama();
    for (int i = 0; i < m.n_keys; i++)
        if (strstr(m.keys[i].name, "context_length")) m.keys[i].number = 200;
    hearth_engine_options o = hearth_engine_defaults();
    o.cpu = "ref";
    o.cache = false;
    o.store = true;
    o.store_dir = temp_dir();
    engine = hearth_engine_open(write_tiny(&m, false, NULL), &o, NULL);
    hearth_session *s = engine ? hearth_session_open(engine, "an agent", "a tenant", NULL) : NULL;
    enum { N = 100 }; /* a block and a tail */
    int32_t tokens[N];
    for (int i = 0; i < N; i++) tokens[i] = 10 + i;
    if (!s || !hearth_session_append(s, tokens, N, NULL) || !hearth_session_set_note(s, "a note", 6, NULL) || !hearth_session_save(s, NULL)) abort();
    hearth_session_free(s);
    collect(temp_dir());
    if (n_files == 0) abort();
}

/* As docs/store.md tells it: of all bytes, or of the header where the tensors have checksums of their own. */
static void mend(buf *f, bool header_only) {
    uint64_t n = 0;
    const size_t after = TENSOR_SUM_AT + TENSOR_SUM_DIGITS;
    memcpy(&n, f->data, 8);
    if (f->len < after + 8 || n > f->len - 8 || n + 8 < after) return;
    uint64_t sum = XXH3_64bits(f->data, TENSOR_SUM_AT);
    sum = XXH3_64bits_withSeed(f->data + after, n + 8 - after, sum);
    if (!header_only) sum = XXH3_64bits_withSeed(f->data + n + 8, f->len - n - 8, sum);
    char digits[TENSOR_SUM_DIGITS + 1];
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)sum);
    memcpy(f->data + TENSOR_SUM_AT, digits, TENSOR_SUM_DIGITS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!engine) make_files();
    if (size < 2) return 0;
    const buf *from = &files[data[1] % n_files];
    buf copy = {0};
    if (!buf_add(&copy, from->data, from->len, NULL)) abort();
    apply_edits(&copy, data + 2, size - 2);
    if (data[0] % 2 == 0) mend(&copy, data[0] % 4 == 0);
    const char *path = memory_file(copy.data, copy.len);
    err e = {0};
    agent_record a = {0};
    kv_name head;
    const shelf_key key = keys[data[1] % n_files];
    if (!agent_read(path, &engine->model.kv, &a, &e) && e.code == HEARTH_OK) abort();
    agent_free(&a);
    e = (err){0};
    if (!agent_read_head(path, &head, &e) && e.code == HEARTH_OK) abort();
    e = (err){0};
    if (!blockfile_verify(path, &key, false, &e) && e.code == HEARTH_OK) abort();
    e = (err){0};
    if (!blockfile_verify(path, &key, true, &e) && e.code == HEARTH_OK) abort();
    buf_free(&copy);
    return 0;
}
