/* kquants.h: how Q3_K, Q4_K and Q5_K hide their integer scales in 12 bytes. */
#ifndef QUANT_KQUANTS_H
#define QUANT_KQUANTS_H

#include "quant/blocks.h"

/* Q4_K and Q5_K: eight scales and eight minimums of six bits. The first four of each are the low six bits of bytes 0..7;
 * of the others the low four bits are in bytes 8..11 (minimum in the high half), the top two in the top of bytes 0..7. */
void quant_k_scales(uint8_t scale[8], uint8_t min[8], const uint8_t packed[12]);
/* Q3_K: sixteen signed scales of six bits. Low four bits: bytes 0..7, the last eight in the high halves. Top two bits: bytes 8..11. */
void quant_q3_k_scales(int8_t scale[16], const uint8_t packed[12]);

#endif
