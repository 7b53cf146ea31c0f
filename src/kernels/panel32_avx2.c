/* Products of blocks of 32 columns. */
#include "kernels/ops_avx2.h"

#include "kernels/panel32_impl.h"
