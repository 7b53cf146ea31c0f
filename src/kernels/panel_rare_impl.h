/* panel_rare_impl.h: products of the rarer quantized types whose blocks have 256 columns. In the words of an ops_*.h. */
#ifndef KERNELS_PANEL_RARE_IMPL_H
#define KERNELS_PANEL_RARE_IMPL_H

#include "kernels/panel_impl.h"

PANEL_TYPE(iq4_xs, 256, 136, 272)
PANEL_TYPE_IN(TILE_FEW_CASES, q2_k, 256, 84, 168)
PANEL_TYPE_IN(TILE_FEW_CASES, q3_k, 256, 110, 224)

const kern_matmul SET(panel_rare)[QUANT_TYPE_END] = {
    [QUANT_IQ4_XS] = PANEL_PRODUCT(iq4_xs), [QUANT_Q2_K] = PANEL_PRODUCT(q2_k), [QUANT_Q3_K] = PANEL_PRODUCT(q3_k),
};

#endif
