/* The set for ARM with the dot product and half-precision extensions. */
#include "kernels/sets.h"

#include "kernels/ops_neon.h"

#include "kernels/attention_impl.h"

static bool neon_usable(void) { return kern_cpu_get()->neon; }

const kernels kern_neon = {
    .name = "neon",
    .usable = neon_usable,
    .matmul = panel_matmul,
    .attention = vec_attention,
    .rms_norm = vec_rms_norm,
    .add = vec_add,
    .silu_mul = vec_silu_mul,
    .gelu_mul = vec_gelu_mul,
    .to_f16 = vec_to_f16,
    .dot = vec_dot,
};
