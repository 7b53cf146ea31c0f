/* Products of floats, and what is decoded to floats. */
#include "kernels/ops_avx2.h"

#include "kernels/float_impl.h"
