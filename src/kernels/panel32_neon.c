/* Products of blocks of 32 columns. */
#include "kernels/ops_neon.h"

#include "kernels/panel32_impl.h"
