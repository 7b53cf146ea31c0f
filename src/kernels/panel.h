/* panel.h: how weights and activations lie in memory for the panel kernels (all sets but ref).
 *
 * A panel is 16 rows of a weight. A chunk is 256 columns of a panel (the last one of a row may be shorter). Within a chunk the
 * rows are interleaved by 32-bit words: word j of row r lies at (16 j + r) * 4, so that a vector holds the same word of neighbouring
 * rows, every lane sums its own row and no sum over lanes is ever needed. The bits are those of the file, in Q6_K in
 * another order, so that each block reads its own, and in Q8_0 with the sign as products want it (signed_weight). Memory is read in one straight line: scales lie before the weights they belong to (after them, a block
 * would wait for a line that the CPU has not yet asked for; Q8_0 with one token reads 34 GB/s on a Zen 4 core, and read 28 then):
 *
 *   type           words of a chunk, in order                                                        bytes per 256 columns
 *   F32            256 values                                                                        16384
 *   F16, BF16      128 pairs                                                                          8192
 *   Q8_0           per block of 32: 16 halves; then per block 8 words of bytes                        4352
 *   Q4_0, IQ4_NL   per block of 32: 16 halves; then per block 4 words of nibbles                      2304
 *   MXFP4          per block of 32: 16 exponents; then per block 4 words of nibbles                   2176
 *   Q4_K           16 halves d, 16 halves dmin, 3 words of scales, 32 words of nibbles                2304
 *   Q5_K           16 halves d, 16 halves dmin, 3 words of scales, 8 of fifth bits, 32 of nibbles     2816
 *   Q6_K           d as float, 4 words of scales, per 16 columns 3 words of 6 bits and 2 of the fourth  3392
 *   IQ4_XS         d and upper scales, lower scales, 32 words of nibbles                              2176
 *   Q4_1           per block: d and m; then per block 4 words of nibbles                               2560
 *   Q5_0           per block: 16 halves; then per block fifth bits; then per block 4 words of nibbles  2816
 *   Q5_1           per block: d and m; then per block fifth bits; then per block 4 words of nibbles    3072
 *   Q2_K           d and dmin, 4 words of scales and minima, 16 words of bit pairs                     1344
 *   Q3_K           16 halves and 32 bytes of nothing, 3 words of scales, 8 of third bits, 16 of pairs  1792
 *
 * A panel's chunks follow each other, panels are padded to 64 bytes. Rows beyond the last repeat the last.
 *
 * Activations for quantized weights are bytes with a float scale per 32 columns. Tokens are grouped in tiles of 8 (the last may be smaller,
 * w tokens); a tile has for every 32 columns w * 32 bytes, w scales, w (scale * sum), w (-sum), w (-32 * sum of the first 16) and w (-32 * sum of
 * the last 16), and for every chunk, after its columns, w totals of -(scale * sum). Activations for float weights are floats, a tile has for every two columns w pairs. */
#ifndef KERNELS_PANEL_H
#define KERNELS_PANEL_H

#define PANEL_ROWS 16
#define PANEL_CHUNK 256 /* columns */
#define PANEL_CHUNK_MAX 4352 /* bytes of a chunk of quantized weights */
#define PANEL_TILE 8    /* tokens */
#define PANEL_ACT 52    /* bytes of a token's 32 quantized activations */
#define PANEL_ACT_STEP 4 /* tokens that a task prepares at least: half a tile, so that two threads share one */
#define PANEL_TOKENS 128 /* tokens whose sums are kept while a panel is read once */
#define PANEL_L2 (384 << 10) /* bytes of activations that are read again for every panel of a task */

#endif
