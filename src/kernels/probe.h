/* probe.h: small loops that show what the machine can do at most: how fast it reads memory, how fast each kind of unit multiplies. They
 * compute nothing of use; `hearth bench` holds its figures against theirs. Each works on one thread; the caller spreads them. */
#ifndef KERNELS_PROBE_H
#define KERNELS_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads bytes (a multiple of KERN_PROBE_STEP, 64-byte aligned) and returns the xor of all 64-bit words, so that the result proves the reading. */
typedef uint64_t kern_probe_read(const void *data, size_t bytes);
/* Multiplies and adds for `rounds` rounds and returns how many operations that were (a product and its sum are two). *proof gets a number that
 * must be kern_probe.expect times rounds: sums of small whole numbers, so exact in every format that is used. */
typedef double kern_probe_multiply(int64_t rounds, double *proof);

enum { KERN_PROBE_STEP = 1024 };

typedef struct kern_probe {
    const char *name;  /* "f32", "int8 dot": the unit */
    const char *set;   /* the set of kernels that uses this unit */
    const char *unit;  /* "flop" or "op" */
    bool tile;         /* a matrix unit, not a vector unit */
    kern_probe_multiply *multiply;
    double expect;     /* of proof, per round */
} kern_probe;

/* The probes of this build that run on this machine and belong to the set named or to one below it (NULL: to any), best set first. Returns
 * how many were written to out, at most cap. */
int kern_probes(const char *set, const kern_probe **out, int cap);
/* The widest loads that this machine has. */
kern_probe_read *kern_probe_reader(void);

/* What the files of each instruction set offer; absent ones are weak symbols and NULL. */
kern_probe_read kern_probe_read_ref;
kern_probe_multiply kern_probe_f32_ref;
__attribute__((weak)) kern_probe_read kern_probe_read_avx2, kern_probe_read_avx512;
__attribute__((weak)) kern_probe_multiply kern_probe_f32_avx2, kern_probe_int8_avx2;
__attribute__((weak)) kern_probe_multiply kern_probe_f32_avx512, kern_probe_int8_avx512, kern_probe_bf16_avx512;
__attribute__((weak)) kern_probe_multiply kern_probe_int8_amx, kern_probe_bf16_amx;
__attribute__((weak)) kern_probe_multiply kern_probe_f32_neon, kern_probe_int8_neon;

#endif
