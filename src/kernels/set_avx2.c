/* The set for AVX2 with FMA and F16C. */
#include "kernels/sets.h"

#include "kernels/ops_avx2.h"

#include "kernels/attention_impl.h"

static bool avx2_usable(void) { return kern_cpu_get()->avx2; }

const kernels kern_avx2 = {
    .name = "avx2",
    .usable = avx2_usable,
    .matmul = panel_matmul,
    .attention = vec_attention,
    .rms_norm = vec_rms_norm,
    .add = vec_add,
    .silu_mul = vec_silu_mul,
    .gelu_mul = vec_gelu_mul,
    .to_f16 = vec_to_f16,
    .dot = vec_dot,
};
