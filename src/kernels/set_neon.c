/* The set for ARM with the dot product and half-precision extensions. */
#include "kernels/sets.h"

#include "kernels/ops_neon.h"

#include "kernels/set_impl.h"

static bool neon_usable(void) { return kern_cpu_get()->neon; }

const kernels kern_neon = {
    .name = "neon",
    .usable = neon_usable,
    SET_FUNCTIONS,
};
