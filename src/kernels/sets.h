/* sets.h: the sets of kernels that this build may hold; a set that was not built is a weak symbol and NULL. */
#ifndef KERNELS_SETS_H
#define KERNELS_SETS_H

#include "kernels/kernels.h"

extern const kernels kern_ref;
extern const kernels kern_avx2 __attribute__((weak));
extern const kernels kern_avx512 __attribute__((weak));
extern const kernels kern_amx __attribute__((weak));
extern const kernels kern_neon __attribute__((weak));

/* What the CPU has and the operating system lets us use. Asked once. */
typedef struct kern_cpu {
    bool avx2;   /* with FMA and F16C */
    bool avx512; /* F, BW, DQ, VL, VNNI, BF16, VBMI */
    bool amx;    /* tiles with int8 and bf16, permission granted */
    bool neon;   /* dot product and half precision */
    /* How far ahead packed weights are asked for with one token. Intel's prefetchers stop at every page of 4 KiB and gain a tenth to a third from being asked; AMD's do not
     * and lose as much. */
    size_t ahead_one, ahead_pair; /* pair: where weights are read at two places in turns; 0: at one is as good */
} kern_cpu;
const kern_cpu *kern_cpu_get(void);

#endif
