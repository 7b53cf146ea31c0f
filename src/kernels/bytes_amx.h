/* bytes_amx.h: products of many tokens on the tile unit in bytes, for set_amx.c. */
#ifndef KERNELS_BYTES_AMX_H
#define KERNELS_BYTES_AMX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* Types that are multiplied in bytes: X(name, number, columns and bytes of a block in the file, bytes of 32 columns in a packed chunk). */
#define BYTES_AMX_TYPES(X)                                                                                                                \
    X(q8_0, QUANT_Q8_0, 32, 34, 544)                                                                                                      \
    X(q4_0, QUANT_Q4_0, 32, 18, 288)                                                                                                      \
    X(q4_1, QUANT_Q4_1, 32, 20, 320)                                                                                                      \
    X(q5_0, QUANT_Q5_0, 32, 22, 352)                                                                                                      \
    X(q5_1, QUANT_Q5_1, 32, 24, 384)                                                                                                      \
    X(iq4_nl, QUANT_IQ4_NL, 32, 18, 288)                                                                                                  \
    X(q3_k, QUANT_Q3_K, 256, 110, 224)                                                                                                    \
    X(q4_k, QUANT_Q4_K, 256, 144, 288)                                                                                                    \
    X(q5_k, QUANT_Q5_K, 256, 176, 352)                                                                                                    \
    X(q6_k, QUANT_Q6_K, 256, 210, 424)                                                                                                    \
    X(iq4_xs, QUANT_IQ4_XS, 256, 136, 272)

/* As in kern_matmul. */
size_t kern_amx_bytes_act_bytes(int64_t cols, int64_t n);
void kern_amx_bytes_act(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t n, kern_part p);
void kern_amx_bytes_rows(int type, float *y, int64_t ldy, const void *w, bool packed, int64_t rows, int64_t cols, int64_t r0, int64_t r1, const void *act,
                         int64_t n);

#endif
