/* Products of blocks of 256 columns. */
#include "kernels/ops_avx512.h"

#include "kernels/panel256_impl.h"
