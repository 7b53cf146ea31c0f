/* Products of blocks of 256 columns. */
#include "kernels/ops_neon.h"

#include "kernels/panel256_impl.h"
