/* search.h: the search for scales that the encoders without a fixed encoding share (K-quants, IQ4).
 *
 * It works on one super-block at a time, scaled by a power of two so that its greatest magnitude is near one: squares neither
 * overflow nor vanish, whatever the input. The error it minimises weighs large elements more, because those carry more of
 * a product.
 *
 * Each small block first gets the scale (and minimum) that suits it best: a range of scales is tried, and the best line is
 * solved for through the codes that each of them leads to. Then the super-block's scales follow from the greatest, and the
 * small ones become integers: the nearest and their neighbours are tried with the codes that follow. With codes and integers
 * fixed the super-block's scales are solved for once more, and kept if that lowers the error. */
#ifndef QUANT_SEARCH_H
#define QUANT_SEARCH_H

#include "quant/blocks.h"

enum { SEARCH_COUNT = 16 }; /* small blocks of a super-block, at most; they have 32 elements, at most */

/* A super-block made ready: elements, their weights in the error, and the power of two that brings x back to its size. */
typedef struct search_block {
    float x[QUANT_SUPER], w[QUANT_SUPER], unit;
} search_block;

/* n is QUANT_SUPER, or 32 for a block on its own. False for what no half scale can tell from zero. */
bool search_load(search_block *b, const float *src, int n);

/* Types with minimums: x = d * scale * q - dmin * min, all integers from 0. */
typedef struct search_mins_shape {
    int n, count;    /* elements of a small block; their number */
    int top, levels; /* greatest code; greatest integer scale or minimum */
    float from, to;  /* scales to try: a small block's whole range becomes top + from .. top + to codes */
    int steps;
} search_mins_shape;
typedef struct search_mins {
    float d, dmin, error;
    uint8_t scale[SEARCH_COUNT], min[SEARCH_COUNT], q[QUANT_SUPER];
} search_mins;
void search_with_mins(search_mins *best, const search_block *b, const search_mins_shape *t);

/* Types without: x = d * scale * q. */
typedef struct search_plain_shape {
    int n, count;
    int low, high;             /* codes, when they are all the integers from low to high */
    const int8_t *values;      /* or else 16 values in rising order */
    int scale_low, scale_high; /* integer scales */
    float from, to;            /* scales to try: the greatest magnitude becomes from .. to, of either sign */
    int steps;
} search_plain_shape;
typedef struct search_plain {
    float d, error;
    int scale[SEARCH_COUNT];
    int8_t q[QUANT_SUPER]; /* the values themselves, not their indices */
} search_plain;
void search_without_mins(search_plain *best, const search_block *b, const search_plain_shape *t);

#endif
