/* The set for AVX2 with FMA and F16C. */
#include "kernels/sets.h"

#include "kernels/ops_avx2.h"

#include "kernels/set_impl.h"

static bool avx2_usable(void) { return kern_cpu_get()->avx2; }

const kernels kern_avx2 = {
    .name = "avx2",
    .usable = avx2_usable,
    SET_FUNCTIONS,
};
