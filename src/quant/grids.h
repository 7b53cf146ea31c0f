/* grids.h: the codebooks of the IQ types: points of 8 (or 4, IQ3) magnitudes, in the order of their indices. */
#ifndef QUANT_GRIDS_H
#define QUANT_GRIDS_H

#include <stdint.h>

extern const int8_t quant_grid_iq2_xxs[256][8];
extern const int8_t quant_grid_iq2_xs[512][8];
extern const int8_t quant_grid_iq2_s[1024][8];
extern const int8_t quant_grid_iq3_xxs[256][4];
extern const int8_t quant_grid_iq3_s[512][4];
extern const int8_t quant_grid_iq1[2048][8]; /* signed: -1, 0, 1 */

#endif
