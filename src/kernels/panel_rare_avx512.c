/* Products of rarer blocks of 256 columns. */
#include "kernels/ops_avx512.h"

#include "kernels/panel_rare_impl.h"
