/* set_impl.h: a set as a table, in the words of an ops_*.h: its products from their files, the rest from here. */
#ifndef KERNELS_SET_IMPL_H
#define KERNELS_SET_IMPL_H

#include "kernels/attention_impl.h"

/* The product for a type: bytes, floats, or decoded to floats. */
static const kern_matmul *panel_matmul(int type) {
    const quant_info *info = quant_find(type);
    if (!info || !info->decode) return NULL;
    const kern_matmul *const tables[] = {SET(panel32), SET(panel256), SET(panel_rare), SET(floats)};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (tables[i][type].rows) return &tables[i][type];
    return &SET(decoded)[type];
}

#define SET_FUNCTIONS                                                                                                                     \
    .matmul = panel_matmul, .attention = vec_attention, .rms_norm = vec_rms_norm, .add = vec_add, .silu_mul = vec_silu_mul,               \
    .gelu_mul = vec_gelu_mul, .to_f16 = vec_to_f16, .to_blocks = vec_to_blocks, .dot = vec_dot

#endif
