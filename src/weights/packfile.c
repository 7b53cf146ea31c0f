#include "weights/packfile.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

/* Little-endian fields at fixed places; see docs/weights.md. */
enum {
    HEADER = 4096, ITEM = 64, FOOTER = 32, ALIGN = 4096,
    H_MAGIC = 0, H_VERSION = 8, H_HEADER = 12, H_FILE = 16, H_DATA_END = 24, H_INDEX = 32, H_COUNT = 40, H_TABLE = 48, H_FINGERPRINT = 64,
    H_LAYOUT = 80, H_VARIANT = 96, H_SUM = 4088,
    I_OFFSET = 0, I_BYTES = 8, I_SUM = 16, I_ROWS = 24, I_COLS = 32, I_TYPE = 40, I_SLICE = 44, I_NAME = 48, I_NAME_LEN = 52, I_MAKE = 56,
    F_INDEX_SUM = 0, F_FILE = 8, F_HEADER_SUM = 16, F_SUM = 24,
};
#define BLOCK ((size_t)8 << 20)
static const char magic[8] = {'H', 'E', 'A', 'R', 'T', 'H', 'W', 'P'};

static void put32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> 8 * i);
}
static void put64(uint8_t *p, uint64_t v) {
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)(v >> 8 * i);
}
static uint32_t get32(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24; }
static uint64_t get64(const uint8_t *p) { return (uint64_t)get32(p) | (uint64_t)get32(p + 4) << 32; }
static void put_hash(uint8_t *p, hash128 h) { put64(p, h.low), put64(p + 8, h.high); }
static hash128 get_hash(const uint8_t *p) { return (hash128){get64(p), get64(p + 8)}; }

/* ---- checksums ---- */

size_t pack_pieces(size_t bytes) { return bytes <= PACK_CHUNK ? 1 : (bytes + PACK_CHUNK - 1) / PACK_CHUNK; }

uint64_t pack_piece_sum(const void *data, size_t bytes, size_t piece) {
    size_t at = piece * PACK_CHUNK, len = bytes - at < PACK_CHUNK ? bytes - at : PACK_CHUNK;
    return XXH3_64bits((const char *)data + at, len);
}

static uint64_t join(uint64_t all, uint64_t next) {
    uint8_t b[16];
    put64(b, all), put64(b + 8, next);
    return XXH3_64bits(b, sizeof b);
}

uint64_t pack_join_sums(const uint64_t *sums, size_t n) {
    uint64_t all = sums[0];
    for (size_t i = 1; i < n; i++) all = join(all, sums[i]);
    return all;
}

uint64_t pack_sum(const void *data, size_t bytes) {
    uint64_t all = pack_piece_sum(data, bytes, 0);
    for (size_t i = 1; i < pack_pieces(bytes); i++) all = join(all, pack_piece_sum(data, bytes, i));
    return all;
}

/* ---- reading ---- */

static bool damaged(err *e, const char *what) { return err_set(e, HEARTH_FORMAT, "%s", what); }

static bool read_header(packfile *p, err *e) {
    const uint8_t *h = p->map.data;
    if (p->map.size < HEADER + FOOTER) return damaged(e, "it is too short");
    if (memcmp(h + H_MAGIC, magic, sizeof magic) != 0) return damaged(e, "it does not begin as a packed weights file does");
    if (get64(h + H_SUM) != XXH3_64bits(h, H_SUM)) return damaged(e, "the header's checksum is wrong");
    if (get32(h + H_VERSION) != PACK_VERSION) return damaged(e, "it has another format version");
    if (get32(h + H_HEADER) != HEADER || get64(h + H_FILE) != p->map.size) return damaged(e, "it does not have the length its header says");
    p->key = (pack_key){.table = get_hash(h + H_TABLE), .fingerprint = get_hash(h + H_FINGERPRINT), .layout = get_hash(h + H_LAYOUT)};
    memcpy(p->key.variant, h + H_VARIANT, sizeof p->key.variant - 1);
    return true;
}

static bool read_item(pack_item *item, const uint8_t *at, const uint8_t *names, uint64_t names_len, uint64_t data_end, err *e) {
    *item = (pack_item){.offset = get64(at + I_OFFSET), .bytes = get64(at + I_BYTES), .sum = get64(at + I_SUM), .rows = (int64_t)get64(at + I_ROWS),
                        .cols = (int64_t)get64(at + I_COLS), .type = (int32_t)get32(at + I_TYPE), .slice = (int32_t)get32(at + I_SLICE),
                        .name_len = get32(at + I_NAME_LEN), .make_ns = get64(at + I_MAKE)};
    uint64_t name = get32(at + I_NAME);
    if (name > names_len || item->name_len > names_len - name) return damaged(e, "a name lies outside its index");
    item->name = (const char *)names + name;
    if (item->offset < HEADER || item->offset % ALIGN || item->offset > data_end || item->bytes > data_end - item->offset)
        return damaged(e, "a matrix lies outside its data");
    return true;
}

static bool read_index(packfile *p, err *e) {
    const uint8_t *h = p->map.data, *footer = h + p->map.size - FOOTER;
    uint64_t data_end = get64(h + H_DATA_END), index = get64(h + H_INDEX), n = get64(h + H_COUNT), end = p->map.size - FOOTER;
    if (get64(footer + F_SUM) != XXH3_64bits(footer, F_SUM)) return damaged(e, "the footer's checksum is wrong");
    if (get64(footer + F_FILE) != p->map.size || get64(footer + F_HEADER_SUM) != get64(h + H_SUM)) return damaged(e, "header and footer do not belong together");
    if (data_end < HEADER || index < data_end || index > end || n > (end - index) / ITEM) return damaged(e, "the index lies outside the file");
    if (get64(footer + F_INDEX_SUM) != XXH3_64bits(h + index, end - index)) return damaged(e, "the index's checksum is wrong");
    p->items = mem_alloc((size_t)n, sizeof *p->items, e);
    if (!p->items) return false;
    p->n = (size_t)n;
    const uint8_t *names = h + index + n * ITEM;
    for (size_t i = 0; i < p->n; i++)
        if (!read_item(&p->items[i], h + index + i * ITEM, names, end - index - n * ITEM, data_end, e)) return false;
    return true;
}

bool packfile_open(packfile *p, const char *path, err *e) {
    *p = (packfile){0};
    if (!file_map_open(&p->map, path, e)) return false;
    file_map_huge(&p->map);
    if (read_header(p, e) && read_index(p, e)) return true;
    packfile_close(p);
    return false;
}

void packfile_close(packfile *p) {
    mem_free(p->items);
    file_map_close(&p->map);
    *p = (packfile){0};
}

bool packfile_check(const packfile *p, size_t i) {
    const pack_item *item = &p->items[i];
    return pack_sum(p->map.data + item->offset, (size_t)item->bytes) == item->sum;
}

/* ---- writing ---- */

static uint64_t aligned(uint64_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

static uint64_t index_size(const pack_item *items, size_t n) {
    uint64_t names = 0;
    for (size_t i = 0; i < n; i++)
        /* Slices of one tensor follow each other and share its name. */
        if (i == 0 || items[i].name != items[i - 1].name) names += items[i].name_len;
    return n * ITEM + names;
}

uint64_t packwriter_bytes(const pack_item *items, size_t n) {
    uint64_t at = HEADER;
    for (size_t i = 0; i < n; i++) at += aligned(items[i].bytes);
    return at + index_size(items, n) + FOOTER;
}

static void fill_header(const packwriter *w, uint8_t h[HEADER]) {
    memset(h, 0, HEADER);
    memcpy(h + H_MAGIC, magic, sizeof magic);
    put32(h + H_VERSION, PACK_VERSION);
    put32(h + H_HEADER, HEADER);
    put64(h + H_FILE, w->data_end + w->index_bytes + FOOTER);
    put64(h + H_DATA_END, w->data_end);
    put64(h + H_INDEX, w->data_end);
    put64(h + H_COUNT, w->n);
    put_hash(h + H_TABLE, w->key.table);
    put_hash(h + H_FINGERPRINT, w->key.fingerprint);
    put_hash(h + H_LAYOUT, w->key.layout);
    memcpy(h + H_VARIANT, w->key.variant, sizeof w->key.variant);
    put64(h + H_SUM, XXH3_64bits(h, H_SUM));
}

static bool flush(packwriter *w, err *e) {
    size_t n = w->filled;
    w->filled = 0;
    return file_writer_add(&w->file, w->block, n, e);
}

static bool add(packwriter *w, const void *data, size_t len, err *e) {
    for (const uint8_t *p = data; len > 0;) {
        size_t n = len < BLOCK - w->filled ? len : BLOCK - w->filled;
        memcpy(w->block + w->filled, p, n);
        w->filled += n, p += n, len -= n;
        if (w->filled == BLOCK && !flush(w, e)) return false;
    }
    return true;
}

bool packwriter_begin(packwriter *w, const char *path, const pack_key *key, pack_item *items, size_t n, err *e) {
    *w = (packwriter){.key = *key, .items = items, .n = n, .data_end = HEADER};
    for (size_t i = 0; i < n; i++) {
        items[i].offset = w->data_end;
        w->data_end += aligned(items[i].bytes);
    }
    w->index_bytes = index_size(items, n);
    w->block = mem_alloc(BLOCK, 1, e);
    if (!w->block) return false;
    if (!file_writer_open(&w->file, path, e)) {
        mem_free(w->block);
        return false;
    }
    uint8_t h[HEADER];
    fill_header(w, h);
    return add(w, h, sizeof h, e); /* fits the first block */
}

bool packwriter_add(packwriter *w, const void *data, uint64_t make_ns, err *e) {
    static const uint8_t zeros[ALIGN];
    pack_item *item = &w->items[w->next++];
    item->sum = pack_sum(data, (size_t)item->bytes);
    item->make_ns = make_ns;
    return add(w, data, (size_t)item->bytes, e) && add(w, zeros, (size_t)(aligned(item->bytes) - item->bytes), e);
}

static bool add_index(packwriter *w, buf *out, err *e) {
    uint64_t name = 0;
    if (!buf_reserve(out, (size_t)w->index_bytes, e)) return false;
    for (size_t i = 0; i < w->n; i++) {
        const pack_item *item = &w->items[i];
        uint8_t b[ITEM];
        if (i > 0 && item->name != w->items[i - 1].name) name += w->items[i - 1].name_len;
        put64(b + I_OFFSET, item->offset), put64(b + I_BYTES, item->bytes), put64(b + I_SUM, item->sum);
        put64(b + I_ROWS, (uint64_t)item->rows), put64(b + I_COLS, (uint64_t)item->cols);
        put32(b + I_TYPE, (uint32_t)item->type), put32(b + I_SLICE, (uint32_t)item->slice);
        put32(b + I_NAME, (uint32_t)name), put32(b + I_NAME_LEN, item->name_len), put64(b + I_MAKE, item->make_ns);
        if (!buf_add(out, b, sizeof b, e)) return false;
    }
    for (size_t i = 0; i < w->n; i++)
        if ((i == 0 || w->items[i].name != w->items[i - 1].name) && !buf_add(out, w->items[i].name, w->items[i].name_len, e)) return false;
    return true;
}

bool packwriter_end(packwriter *w, err *e) {
    buf out = {0};
    bool ok = add_index(w, &out, e);
    if (ok) {
        uint8_t h[HEADER], f[FOOTER];
        fill_header(w, h);
        put64(f + F_INDEX_SUM, XXH3_64bits(out.data, out.len));
        put64(f + F_FILE, w->data_end + w->index_bytes + FOOTER);
        put64(f + F_HEADER_SUM, get64(h + H_SUM));
        put64(f + F_SUM, XXH3_64bits(f, F_SUM));
        ok = add(w, out.data, out.len, e) && add(w, f, sizeof f, e) && flush(w, e);
    }
    buf_free(&out);
    if (ok) ok = file_writer_commit(&w->file, e);
    else file_writer_abort(&w->file);
    mem_free(w->block);
    return ok;
}

void packwriter_abort(packwriter *w) {
    file_writer_abort(&w->file);
    mem_free(w->block);
}
