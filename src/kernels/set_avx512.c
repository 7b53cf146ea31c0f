/* The set for AVX-512 with VNNI and BF16. */
#include "kernels/sets.h"

#include "kernels/ops_avx512.h"

#include "kernels/set_impl.h"

static bool avx512_usable(void) { return kern_cpu_get()->avx512; }

const kernels kern_avx512 = {
    .name = "avx512",
    .usable = avx512_usable,
    SET_FUNCTIONS,
};
