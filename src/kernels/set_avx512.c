/* The set for AVX-512 with VNNI and BF16. */
#include "kernels/sets.h"

#include "kernels/ops_avx512.h"

#include "kernels/panel_impl.h"

static bool avx512_usable(void) { return kern_cpu_get()->avx512; }

static const kern_matmul *avx512_matmul(int type) {
    if (type < 0 || type >= QUANT_TYPE_END) return NULL;
    return panel_products[type].rows ? &panel_products[type] : NULL;
}

const kernels kern_avx512 = {
    .name = "avx512",
    .usable = avx512_usable,
    .matmul = avx512_matmul,
};
