/* panel256_impl.h: products of the common quantized types whose blocks have 256 columns. In the words of an ops_*.h. */
#ifndef KERNELS_PANEL256_IMPL_H
#define KERNELS_PANEL256_IMPL_H

#include "kernels/panel_impl.h"

PANEL_TYPE_IN(TILE_CASES, q4_k, q4_k_unpack_as_is, 256, 144, 288)
PANEL_TYPE(q5_k, 256, 176, 352)
PANEL_TYPE(q6_k, 256, 210, 424)

const kern_matmul SET(panel256)[QUANT_TYPE_END] = {
    [QUANT_Q4_K] = PANEL_PRODUCT(q4_k), [QUANT_Q5_K] = PANEL_PRODUCT(q5_k), [QUANT_Q6_K] = PANEL_PRODUCT(q6_k),
};

#endif
