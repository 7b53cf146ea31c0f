/* Products of blocks of 32 columns. */
#include "kernels/ops_avx512.h"

#include "kernels/panel32_impl.h"
