/* The set for AVX-512 with VNNI and BF16. */
#include "kernels/sets.h"

#include "kernels/ops_avx512.h"

#include "kernels/attention_impl.h"

static bool avx512_usable(void) { return kern_cpu_get()->avx512; }

const kernels kern_avx512 = {
    .name = "avx512",
    .usable = avx512_usable,
    .matmul = panel_matmul,
    .attention = vec_attention,
    .rms_norm = vec_rms_norm,
    .add = vec_add,
    .silu_mul = vec_silu_mul,
    .gelu_mul = vec_gelu_mul,
    .to_f16 = vec_to_f16,
    .dot = vec_dot,
};
