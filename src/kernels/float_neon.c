/* Products of floats, and what is decoded to floats. */
#include "kernels/ops_neon.h"

#include "kernels/float_impl.h"
