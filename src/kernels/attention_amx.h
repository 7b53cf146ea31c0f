/* attention_amx.h: attention of many queries on the tile unit. */
#ifndef KERNELS_ATTENTION_AMX_H
#define KERNELS_ATTENTION_AMX_H

#include "kernels/kernels.h"

void kern_attention_amx(const kern_attention *a);

#endif
