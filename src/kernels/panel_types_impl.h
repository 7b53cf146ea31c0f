/* panel_types_impl.h: the quantized types as chunks (panel.h): for each one how it is packed (file to chunk) and how 32 columns of it are unpacked to weights
 * and scales in registers. Written in the words of an ops_*.h. */
#ifndef KERNELS_PANEL_TYPES_IMPL_H
#define KERNELS_PANEL_TYPES_IMPL_H

#include "kernels/kernels.h"
#include "kernels/panel.h"
#include "quant/quant.h"

#define ROWS_AHEAD 384     /* bytes ahead that are asked for in each of the 16 rows of a panel in the file; the hardware cannot follow so many streams */

/* 32 columns of LANES rows, unpacked. The blocks of a chunk are unpacked in order, to the same place: what they have in common is taken apart with the first. */
typedef struct block {
    vi w[8];  /* weights, four columns each */
    vf scale; /* of all 32, or of the first 16 */
    vf second; /* scale of the last 16 (halved types only) */
    vf min;   /* times the sum of activations is added (types with a minimum only) */
    vf second_min; /* the same for the last 16 */
    vf d, minus_dmin; /* with block 0, for those that follow: factors of all scales and minima of a chunk (k_begin), */
    vi scales[2], minima[2]; /* and those, four to a word */
} block;

/* What a type needs beyond the common way; all constant at compile time. */
typedef struct traits {
    int bits;      /* of an unsigned weight; 8: signed bytes */
    int offset;    /* log2 of what is subtracted from an unsigned weight; -1: nothing */
    bool min;      /* has a minimum */
    bool halved;   /* a scale per 16 columns */
} traits;

/* The word of a chunk for the lane group that starts at row h. */
#define WORD(chunk, i) ((chunk) + 64 * (i) + 4 * h)

/* Keeps the compiler from moving the loads of later blocks up to here: it would run out of registers. */
#define KEEP_ORDER() __asm__ volatile("" ::: "memory")

#define LIKELY(x) __builtin_expect((x) != 0, 1) /* else the compiler moves it out of the way, and jumps there and back */

/* Asks for the line `distance` bytes after p, which may lie anywhere. It goes to the second cache: the first is too small for what is needed later, and can wait for too
 * few lines at a time. */
INLINE void ask(const void *p, size_t distance) { __builtin_prefetch((const void *)((uintptr_t)p + distance), 0, 2); }

/* Asks once more, for the first cache: instructions that wait for their line fill the scheduler, and then nothing runs that could ask for more. */
#define ASK_NEAR 4096 /* bytes before they are read */
INLINE void ask_near(const void *p, size_t distance) { __builtin_prefetch((const void *)((uintptr_t)p + distance), 0, 3); }

INLINE void gather_halves(uint8_t *dst, const uint8_t *const row[16], size_t offset) {
    for (int r = 0; r < PANEL_ROWS; r++) memcpy(dst + 2 * r, row[r] + offset, 2);
}

/* 16 bytes of every row to four words of a chunk. Four in a row ask for one line of every row. */
INLINE void words_pack(uint8_t *dst, const uint8_t *const row[16], size_t offset, size_t ahead) {
    transpose16(dst, row, offset);
    for (size_t r = offset / 16 % 4; ahead && r < PANEL_ROWS; r += 4) ask(row[r], offset + ahead);
}

INLINE void pieces_pack(uint8_t *dst, const uint8_t *const row[16], size_t offset, int pieces, size_t ahead) {
    for (int i = 0; i < pieces; i++) words_pack(dst + 256 * i, row, offset + 16 * (size_t)i, ahead);
}

/* Nibbles of one block: the low ones are columns 0 to 15, the high ones 16 to 31. */
INLINE void nibbles_split(vi w[8], const uint8_t *words, int h) {
    const vi low = vi_bytes(15);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        vi x = vi_load(WORD(words, i));
        w[i] = vi_and(x, low);
        w[i + 4] = vi_and(vi_shr(x, 4), low);
    }
}

static const traits q8_0_traits = {.bits = 8, .offset = -1};
INLINE void q8_0_pack(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead) {
    for (int b = 0; b < blocks; b++) {
        size_t at = (size_t)(chunk * 8 + b) * 34;
        gather_halves(dst + 32 * b, row, at);
        uint8_t *words = dst + 32 * blocks + 512 * b;
        pieces_pack(words, row, at + 2, 2, ahead);
        for (int i = 0; i < 512; i += 4 * LANES) vi_store(words + i, signed_weight(vi_load(words + i)));
    }
}
INLINE void q8_0_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
    o->scale = vf_half_load(chunk + 32 * b + 2 * h);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) o->w[i] = vi_load(WORD(chunk + 32 * blocks + 512 * b, i));
}

static const traits q4_0_traits = {.bits = 4, .offset = 3};
INLINE void q4_0_pack(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead) {
    for (int b = 0; b < blocks; b++) {
        size_t at = (size_t)(chunk * 8 + b) * 18;
        gather_halves(dst + 32 * b, row, at);
        words_pack(dst + 32 * blocks + 256 * b, row, at + 2, ahead);
    }
}
INLINE void q4_0_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
    o->scale = vf_half_load(chunk + 32 * b + 2 * h);
    nibbles_split(o->w, chunk + 32 * blocks + 256 * b, h);
}

INLINE void table_weights(vi w[8], const int8_t *values) {
    const vi table = signed_weight(vi_table(values));
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) w[i] = vi_lookup(table, w[i]);
}

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const traits iq4_nl_traits = {.bits = 8, .offset = -1};
#define iq4_nl_pack q4_0_pack
INLINE void iq4_nl_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
    q4_0_unpack(o, chunk, blocks, b, h);
    table_weights(o->w, iq4_values);
}

static const int8_t mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}; /* doubled */
static const traits mxfp4_traits = {.bits = 8, .offset = -1};
INLINE void mxfp4_pack(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead) {
    for (int b = 0; b < blocks; b++) {
        size_t at = (size_t)(chunk * 8 + b) * 17;
        for (int r = 0; r < PANEL_ROWS; r++) dst[16 * b + r] = row[r][at];
        words_pack(dst + 16 * blocks + 256 * b, row, at + 1, ahead);
    }
}
INLINE void mxfp4_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
    o->scale = vf_e8m0_half_load(chunk + 16 * b + h);
    nibbles_split(o->w, chunk + 16 * blocks + 256 * b, h);
    table_weights(o->w, mxfp4_values);
}

INLINE void k_pack(uint8_t *dst, const uint8_t *const row[16], size_t at, int pieces, size_t ahead) {
    pieces_pack(dst, row, at, pieces, ahead);
    gather_halves(dst, row, at); /* d */
    gather_halves(dst + 32, row, at + 2); /* dmin */
}

/* The 12 bytes that hold eight pairs of 6 bits as bytes: the first four pairs lie whole in words 1 and 2, the last four have their low bits in word 3 and their
 * high bits atop words 1 and 2. */
INLINE void k_six_bits(vi scales[2], vi minima[2], const uint8_t *head, int h) {
    const vi first = vi_load(WORD(head, 1)), second = vi_load(WORD(head, 2)), low = vi_load(WORD(head, 3));
    const vi nibble = vi_bytes(15), six = vi_bytes(63), top = vi_bytes(48);
    scales[0] = vi_and(first, six);
    scales[1] = vi_or(vi_and(low, nibble), vi_and(vi_shr(first, 2), top));
    minima[0] = vi_and(second, six);
    minima[1] = vi_or(vi_and(vi_shr(low, 4), nibble), vi_and(vi_shr(second, 2), top));
}

INLINE void k_begin(block *o, const uint8_t *head, int h) {
    o->d = vf_half_load(head + 2 * h);
    o->minus_dmin = vf_sub(vf_set(0), vf_half_load(head + 32 + 2 * h));
    k_six_bits(o->scales, o->minima, head, h);
}

/* Byte i of every word. */
INLINE vi byte_of(vi word, int i) { return i == 0 ? vi_and(word, vi_set(255)) : i == 3 ? vi_shr(word, 24) : vi_and(vi_shr(word, 8 * i), vi_set(255)); }

/* Scale and minimum of block b. */
INLINE void k_scales(block *o, int b) {
    o->scale = vf_mul(o->d, vf_of(byte_of(o->scales[b / 4], b % 4)));
    o->min = vf_mul(o->minus_dmin, vf_of(byte_of(o->minima[b / 4], b % 4)));
}

static const traits q4_k_traits = {.bits = 4, .offset = -1, .min = true};
INLINE void q4_k_pack(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead) {
    (void)blocks;
    k_pack(dst, row, (size_t)chunk * 144, 9, ahead);
}
/* The low nibbles of 32 bytes are one block, the high ones the next. */
INLINE void pair_split(vi w[8], const uint8_t *words, int b, int h, vi low) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        vi x = vi_load(WORD(words, 8 * (b / 2) + i));
        w[i] = vi_and(b & 1 ? vi_shr(x, 4) : x, low);
    }
}
INLINE void q4_k_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
    (void)blocks;
    pair_split(o->w, chunk + 256, b, h, vi_bytes(15));
    if (b == 0) k_begin(o, chunk, h);
    k_scales(o, b);
}

static const traits q5_k_traits = {.bits = 5, .offset = -1, .min = true};
INLINE void q5_k_pack(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead) {
    (void)blocks;
    k_pack(dst, row, (size_t)chunk * 176, 11, ahead);
}
INLINE void q5_k_weights(vi w[8], const uint8_t *chunk, int b, int h, vi low, vi bit) {
    pair_split(w, chunk + 768, b, h, low);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        vi fifth = vi_load(WORD(chunk + 256, i));
        fifth = b < 4 ? vi_shl(fifth, 4 - b) : vi_shr(fifth, b - 4);
        w[i] = vi_or(w[i], vi_and(fifth, bit));
    }
}
INLINE void q5_k_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
    (void)blocks;
    q5_k_weights(o->w, chunk, b, h, vi_bytes(15), vi_bytes(16));
    if (b == 0) k_begin(o, chunk, h);
    k_scales(o, b);
}

static const traits q6_k_traits = {.bits = 6, .offset = 5, .halved = true};
/* From 8 words of upper pairs and 16 of nibbles, which 128 columns share, to each block's own: 3 words for every 16 columns, whose bytes hold 6 bits of one column and 2 of
 * the fourth word's. */
INLINE void q6_k_blocks(uint8_t *dst, const uint8_t *upper, const uint8_t *nibbles, int h) {
#pragma GCC unroll 8
    for (int half = 0; half < 8; half++, dst += 192) {
        const int b = half / 2;
        vi w[4];
        for (int i = 0; i < 4; i++) {
            const vi x = vi_load(WORD(nibbles + 512 * (b & 1), 4 * (half % 2) + i)), u = vi_load(WORD(upper, 4 * (half % 2) + i));
            w[i] = vi_or(vi_and(b < 2 ? x : vi_shr(x, 4), vi_bytes(15)), vi_shl(vi_and(vi_shr(u, 2 * b), vi_bytes(3)), 4));
        }
        for (int i = 0; i < 3; i++) vi_store(WORD(dst, i), vi_or(w[i], vi_shl(vi_and(w[3], vi_bytes((int8_t)(3 << 2 * i))), 6 - 2 * i)));
    }
}
INLINE void q6_k_pack(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead) {
    (void)blocks;
    _Alignas(64) uint8_t upper[512], nibbles[1024];
    size_t at = (size_t)chunk * 210;
    for (int r = 0; r < PANEL_ROWS; r++) {
        uint16_t d;
        memcpy(&d, row[r] + at + 208, 2);
        float f = quant_f16_to_f32(d);
        memcpy(dst + 4 * r, &f, 4);
    }
    words_pack(dst + 64, row, at + 192, ahead);
    for (int half = 0; half < 2; half++) {
        pieces_pack(upper, row, at + 128 + 32 * (size_t)half, 2, ahead);
        pieces_pack(nibbles, row, at + 64 * (size_t)half, 4, ahead);
        for (int h = 0; h < PANEL_ROWS; h += LANES) q6_k_blocks(dst + 320 + 1536 * half, upper, nibbles, h);
    }
}
typedef struct q6_k_masks {
    vi six, pair[3];
} q6_k_masks;
/* 16 columns. */
INLINE void q6_k_weights(vi w[4], const uint8_t *chunk, int half, int h, const q6_k_masks *m) {
    const uint8_t *words = chunk + 320 + 192 * half;
    const vi x = vi_load(WORD(words, 0)), y = vi_load(WORD(words, 1)), z = vi_load(WORD(words, 2));
    w[0] = vi_and(x, m->six), w[1] = vi_and(y, m->six), w[2] = vi_and(z, m->six);
    w[3] = vi_or(vi_or(vi_and(vi_shr(x, 6), m->pair[0]), vi_and(vi_shr(y, 4), m->pair[1])), vi_and(vi_shr(z, 2), m->pair[2]));
}
INLINE void q6_k_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
    (void)blocks;
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) q6_k_weights(o->w + 4 * half, chunk, 2 * b + half, h, &(q6_k_masks){vi_bytes(63), {vi_bytes(3), vi_bytes(12), vi_bytes(48)}});
    vi scales = vi_load(WORD(chunk + 64, b / 2)); /* two blocks to a word */
    vf d = vf_load((const float *)(const void *)WORD(chunk, 0));
    o->scale = vf_mul(d, vf_of(vi_sar(vi_shl(scales, b & 1 ? 8 : 24), 24)));
    o->second = vf_mul(d, vf_of(vi_sar(vi_shl(scales, b & 1 ? 0 : 16), 24)));
}

static const traits iq4_xs_traits = {.bits = 8, .offset = -1};
INLINE void iq4_xs_pack(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead) {
    (void)blocks;
    size_t at = (size_t)chunk * 136;
    transpose16(dst, row, at); /* of its four words the last two are weights, written over at once */
    pieces_pack(dst + 128, row, at + 8, 8, ahead);
}
INLINE void iq4_xs_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
    (void)blocks;
    nibbles_split(o->w, chunk + 128 + 256 * b, h);
    table_weights(o->w, iq4_values);
    vi d = vi_load(WORD(chunk, 0)), low = vi_load(WORD(chunk, 1));
    vi scale = vi_or(vi_and(vi_shr(low, 4 * b), vi_set(15)), vi_and(vi_shr(d, 12 + 2 * b), vi_set(48)));
    o->scale = vf_mul(vf_half_low(d), vf_of(vi_sub(scale, vi_set(32))));
}

INLINE void gather_words(uint8_t *dst, const uint8_t *const row[16], size_t offset) {
    for (int r = 0; r < PANEL_ROWS; r++) memcpy(dst + 4 * r, row[r] + offset, 4);
}

static const traits q4_1_traits = {.bits = 4, .offset = -1, .min = true};
INLINE void q4_1_pack(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead) {
    for (int b = 0; b < blocks; b++) {
        size_t at = (size_t)(chunk * 8 + b) * 20;
        gather_words(dst + 64 * b, row, at);
        words_pack(dst + 64 * blocks + 256 * b, row, at + 4, ahead);
    }
}
INLINE void q4_1_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
    nibbles_split(o->w, chunk + 64 * blocks + 256 * b, h);
    vi d = vi_load(WORD(chunk, b));
    o->scale = vf_half_low(d);
    o->min = vf_half_high(d);
}

/* Exchanges two bits of the place of every bit in a word: those in mask with those `by` places higher. */
#define EXCHANGE(x, mask, by)                                           \
    do {                                                                \
        vi moved = vi_and(vi_xor(vi_shr(x, by), x), vi_set(mask));      \
        x = vi_xor(vi_xor(x, moved), vi_shl(moved, by));                \
    } while (0)

/* The fifth bits of 32 columns, one word a row: bit c of column c moves to bit c / 4 of byte c % 4, where the four columns of weight word c / 4 find it. */
INLINE void fifth_bits_pack(uint8_t *dst, const uint8_t *const row[16], size_t offset) {
    gather_words(dst, row, offset);
    for (int h = 0; h < PANEL_ROWS; h += LANES) {
        vi x = vi_load(WORD(dst, 0));
        EXCHANGE(x, 0x0000CCCC, 14);
        EXCHANGE(x, 0x00AA00AA, 7);
        EXCHANGE(x, 0x0C0C0C0C, 2);
        EXCHANGE(x, 0x22222222, 1);
        vi_store(WORD(dst, 0), x);
    }
}
INLINE void fifth_bits_add(vi w[8], const uint8_t *word, int h) {
    const vi bits = vi_load(WORD(word, 0));
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) w[i] = vi_or(w[i], vi_and(i < 4 ? vi_shl(bits, 4 - i) : vi_shr(bits, i - 4), vi_bytes(16)));
}

static const traits q5_0_traits = {.bits = 5, .offset = 4};
INLINE void q5_0_pack(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead) {
    for (int b = 0; b < blocks; b++) {
        size_t at = (size_t)(chunk * 8 + b) * 22;
        gather_halves(dst + 32 * b, row, at);
        fifth_bits_pack(dst + 32 * blocks + 64 * b, row, at + 2);
        words_pack(dst + 96 * blocks + 256 * b, row, at + 6, ahead);
    }
}
INLINE void q5_0_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
    o->scale = vf_half_load(chunk + 32 * b + 2 * h);
    nibbles_split(o->w, chunk + 96 * blocks + 256 * b, h);
    fifth_bits_add(o->w, chunk + 32 * blocks + 64 * b, h);
}

static const traits q5_1_traits = {.bits = 5, .offset = -1, .min = true};
INLINE void q5_1_pack(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead) {
    for (int b = 0; b < blocks; b++) {
        size_t at = (size_t)(chunk * 8 + b) * 24;
        gather_words(dst + 64 * b, row, at);
        fifth_bits_pack(dst + 64 * blocks + 64 * b, row, at + 4);
        words_pack(dst + 128 * blocks + 256 * b, row, at + 8, ahead);
    }
}
INLINE void q5_1_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
    nibbles_split(o->w, chunk + 128 * blocks + 256 * b, h);
    fifth_bits_add(o->w, chunk + 64 * blocks + 64 * b, h);
    vi d = vi_load(WORD(chunk, b));
    o->scale = vf_half_low(d);
    o->min = vf_half_high(d);
}

/* Pairs of bits: 128 columns share 8 words, block b takes pair b % 4 of every byte. */
INLINE void bit_pairs_split(vi w[8], const uint8_t *words, int b, int h) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) w[i] = vi_and(vi_shr(vi_load(WORD(words, 8 * (b / 4) + i)), 2 * (b % 4)), vi_bytes(3));
}

static const traits q2_k_traits = {.bits = 2, .offset = -1, .min = true, .halved = true};
INLINE void q2_k_pack(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead) {
    (void)blocks;
    gather_words(dst, row, (size_t)chunk * 84 + 80);
    pieces_pack(dst + 64, row, (size_t)chunk * 84, 5, ahead);
}
INLINE void q2_k_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
    (void)blocks;
    bit_pairs_split(o->w, chunk + 320, b, h);
    const vi d = vi_load(WORD(chunk, 0)), scales = vi_load(WORD(chunk + 64, b / 2)), low = vi_set(15);
    const int at = b & 1 ? 16 : 0; /* two blocks to a word; a byte is a scale and a minimum */
    const vf scale = vf_half_low(d), min = vf_sub(vf_set(0), vf_half_high(d));
    o->scale = vf_mul(scale, vf_of(vi_and(vi_shr(scales, at), low)));
    o->min = vf_mul(min, vf_of(vi_and(vi_shr(scales, at + 4), low)));
    o->second = vf_mul(scale, vf_of(vi_and(vi_shr(scales, at + 8), low)));
    o->second_min = vf_mul(min, vf_of(vi_and(vi_shr(scales, at + 12), low)));
}

static const traits q3_k_traits = {.bits = 3, .offset = 2, .halved = true};
INLINE void q3_k_pack(uint8_t *dst, const uint8_t *const row[16], int64_t chunk, int blocks, size_t ahead) {
    (void)blocks;
    size_t at = (size_t)chunk * 110;
    gather_halves(dst, row, at + 108);
    for (int i = 0; i < 3; i++) gather_words(dst + 64 + 64 * i, row, at + 96 + 4 * (size_t)i);
    pieces_pack(dst + 256, row, at, 6, ahead);
}
INLINE void q3_k_unpack(block *o, const uint8_t *chunk, int blocks, int b, int h) {
    (void)blocks;
    bit_pairs_split(o->w, chunk + 768, b, h);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        vi third = vi_load(WORD(chunk + 256, i));
        third = b < 2 ? vi_shl(third, 2 - b) : vi_shr(third, b - 2);
        o->w[i] = vi_or(o->w[i], vi_and(third, vi_bytes(4)));
    }
    /* Scales of 6 bits: four low bits in the first two words (low nibbles for the first 8 scales, high ones for the last), two high bits in the third. */
    const int word = b / 2;
    vi low = vi_shr(vi_load(WORD(chunk + 64, word & 1)), word & 2 ? 4 : 0), high = vi_shr(vi_load(WORD(chunk + 64, 2)), 2 * word);
    vi scales = vi_or(vi_and(low, vi_bytes(15)), vi_shl(vi_and(high, vi_bytes(3)), 4));
    const vf d = vf_half_load(chunk + 2 * h);
    o->scale = vf_mul(d, vf_of(vi_sub(vi_and(vi_shr(scales, b & 1 ? 16 : 0), vi_set(63)), vi_set(32))));
    o->second = vf_mul(d, vf_of(vi_sub(vi_and(vi_shr(scales, b & 1 ? 24 : 8), vi_set(63)), vi_set(32))));
}

/* ---- floats ---- */

#define FLOAT_STEP 8 /* columns are padded with zeros to a multiple of this */

INLINE int64_t float_padded(int64_t cols) { return (cols + FLOAT_STEP - 1) / FLOAT_STEP * FLOAT_STEP; }

/* `bytes` of every row, from offset, to words; what is missing to a multiple of 32 bytes (eight columns of four bytes) or 16 (of two) is zero. */
INLINE void float_pack(uint8_t *dst, const uint8_t *const row[16], size_t offset, size_t bytes, size_t padded, size_t ahead) {
    size_t i = 0;
    for (; i + 16 <= bytes; i += 16) words_pack(dst + 16 * i, row, offset + i, ahead);
    for (; i < padded; i += 16) {
        uint8_t rest[PANEL_ROWS][16] = {{0}};
        const uint8_t *at[PANEL_ROWS];
        for (int r = 0; r < PANEL_ROWS; r++) {
            if (i < bytes) memcpy(rest[r], row[r] + offset + i, bytes - i);
            at[r] = rest[r];
        }
        transpose16(dst + 16 * i, at, 0);
    }
}

/* ---- rows of a panel ---- */

INLINE int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }

/* Where the rows of a panel lie in the file; those beyond the last repeat it. */
INLINE void panel_rows(const uint8_t *row[16], const void *w, size_t row_bytes, int64_t r, int64_t rows) {
    for (int i = 0; i < PANEL_ROWS; i++) row[i] = (const uint8_t *)w + (size_t)min_of(r + i, rows - 1) * row_bytes;
}

INLINE void store_rows(float *y, int64_t ldy, const float *acc, int64_t tokens, int64_t count) {
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t i = 0; i < count; i++) y[t * ldy + i] = acc[PANEL_ROWS * t + i];
}

/* Tokens that are computed in one go: their activations should stay in the second-level cache. */
INLINE int64_t tokens_at_once(size_t token_bytes) {
    int64_t fit = (int64_t)(PANEL_L2 / token_bytes) / PANEL_TILE * PANEL_TILE;
    return fit < PANEL_TILE ? PANEL_TILE : fit > PANEL_TOKENS ? PANEL_TOKENS : fit;
}

/* All tokens of a tile. Each number of them has a function of its own, where there are registers for all: taking weights apart a second time, for one token, costs as much as the products of three. */
#if TILE_STEP == 8
#define TILE_CASE(ONE, n)                                                                                                                  \
    case n: ONE(acc, chunk, blocks, x, n, ahead, 0, n); break;
#define TILE_CASES(ONE)                                                                                                                    \
    switch (w) {                                                                                                                           \
        TILE_CASE(ONE, 1) TILE_CASE(ONE, 2) TILE_CASE(ONE, 3) TILE_CASE(ONE, 4)                                                            \
        TILE_CASE(ONE, 5) TILE_CASE(ONE, 6) TILE_CASE(ONE, 7) TILE_CASE(ONE, 8)                                                            \
    }
#else
#define TILE_CASES(ONE)                                                                                                                   \
    int t = 0;                                                                                                                            \
    for (; t + 4 <= w; t += 4) ONE(acc, chunk, blocks, x, w, ahead, t, 4);                                                                \
    if (w - t == 3) ONE(acc, chunk, blocks, x, w, ahead, t, 3);                                                                           \
    else if (w - t == 2) ONE(acc, chunk, blocks, x, w, ahead, t, 2);                                                                      \
    else if (w - t == 1) ONE(acc, chunk, blocks, x, w, ahead, t, 1);
#endif

/* The same with fewer functions, for types that are rare: unrolled over 256 columns each one takes the compiler a second. */
#define TILE_FEW_CASES(ONE)                                                                                                               \
    int t = 0;                                                                                                                            \
    for (; t + 4 <= w; t += 4) ONE(acc, chunk, blocks, x, w, ahead, t, 4);                                                                \
    for (; t < w; t++) ONE(acc, chunk, blocks, x, w, ahead, t, 1);

/* The products of a set, each table in a file of its own (NULL rows: not there). */
extern const kern_matmul SET(panel32)[], SET(panel256)[], SET(panel_rare)[], SET(floats)[], SET(decoded)[];

#endif
