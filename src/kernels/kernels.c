/* The choice of a set of kernels at run time: from what the CPU has, what the operating system saves, and what the
 * user asked for. */
#include "kernels/kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "kernels/sets.h"
#include "quant/quant.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

static kern_cpu cpu;

#if defined(__x86_64__)
static uint64_t read_xcr0(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Linux hands out the tile registers only to those who ask. */
static bool amx_permission(void) {
    enum { arch_req_xcomp_perm = 0x1023, tile_data = 18 };
    return syscall(SYS_arch_prctl, arch_req_xcomp_perm, tile_data) == 0;
}

static void detect(void) {
    uint32_t a, b, c, d;
    if (__get_cpuid_count(0, 0, &a, &b, &c, &d) && b == signature_INTEL_ebx && d == signature_INTEL_edx && c == signature_INTEL_ecx) cpu.ahead_one = 12288, cpu.ahead_pair = 8192;
    if (!__get_cpuid_count(1, 0, &a, &b, &c, &d)) return;
    const uint32_t fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28, f16c = 1u << 29;
    if ((c & (fma | osxsave | avx | f16c)) != (fma | osxsave | avx | f16c)) return;
    uint64_t xcr0 = read_xcr0();
    if ((xcr0 & 0x6) != 0x6) return;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    uint32_t b7 = b, c7 = c, d7 = d, subleaves = a;
    cpu.avx2 = b7 >> 5 & 1;
    uint32_t a71 = 0;
    if (subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) a71 = a;
    const uint32_t f = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31, vbmi = 1u << 1, vnni = 1u << 11, bf16 = 1u << 5;
    cpu.avx512 = cpu.avx2 && (xcr0 & 0xE6) == 0xE6 && (b7 & (f | dq | bw | vl)) == (f | dq | bw | vl) &&
                 (c7 & (vbmi | vnni)) == (vbmi | vnni) && (a71 & bf16);
    const uint32_t amx_bf16 = 1u << 22, amx_tile = 1u << 24, amx_int8 = 1u << 25;
    cpu.amx = cpu.avx512 && (xcr0 & 0x60000) == 0x60000 &&
              (d7 & (amx_bf16 | amx_tile | amx_int8)) == (amx_bf16 | amx_tile | amx_int8) && amx_permission();
}
#elif defined(__aarch64__)
static void detect(void) {
    const unsigned long half = 1ul << 10, dot = 1ul << 20; /* HWCAP_ASIMDHP, HWCAP_ASIMDDP */
    cpu.neon = (getauxval(AT_HWCAP) & (half | dot)) == (half | dot);
}
#else
static void detect(void) {}
#endif

const kern_cpu *kern_cpu_get(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, detect);
    return &cpu;
}

static const kernels *all[6];

static void list_sets(void) {
    const kernels *const candidates[] = {&kern_amx, &kern_avx512, &kern_avx2, &kern_neon, &kern_ref};
    int n = 0;
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++)
        if (candidates[i]) all[n++] = candidates[i];
}

const kernels *const *kernels_all(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, list_sets);
    return all;
}

const kernels *kernels_find(const char *name, err *e) {
    const kernels *const *sets = kernels_all();
    bool automatic = !name || strcmp(name, "auto") == 0;
    char usable[128] = "";
    bool known = false;
    for (int i = 0; sets[i]; i++) {
        bool match = automatic || strcmp(sets[i]->name, name) == 0;
        known |= match;
        if (!sets[i]->usable()) continue;
        if (match) return sets[i];
        size_t len = strlen(usable);
        snprintf(usable + len, sizeof usable - len, "%s%s", len ? ", " : "", sets[i]->name);
    }
    char quoted[48];
    err_quote(quoted, sizeof quoted, name, strlen(name));
    err_set(e, HEARTH_ARGUMENT, "the kernels \"%s\" %s: use auto, %s", quoted, known ? "need a CPU that this machine does not have" : "are unknown",
            usable);
    return NULL;
}

static const kern_matmul *find_matmul(const kernels *k, int type, bool fine) {
    const kernels *const *sets = kernels_all();
    bool below = false;
    for (int i = 0; sets[i]; i++) {
        below |= sets[i] == k;
        if (!below || !sets[i]->usable()) continue;
        const kern_matmul *m = fine && sets[i]->matmul_fine ? sets[i]->matmul_fine(type) : sets[i]->matmul(type);
        if (m) return m;
    }
    return NULL;
}

const kern_matmul *kernels_matmul(const kernels *k, int type) { return find_matmul(k, type, false); }
const kern_matmul *kernels_matmul_fine(const kernels *k, int type) { return find_matmul(k, type, true); }

size_t kern_attention_scratch(int n_q, int k_dim, int v_dim) {
    /* ref: sums in double for every query and one decoded row of each kind. Others: up to 128 keys (in two parts of 16 bits) and values, scales of values, the queries,
     * float sums. */
    size_t q = ((size_t)n_q + 31) & ~(size_t)31, k = ((size_t)k_dim + 31) & ~(size_t)31, v = ((size_t)v_dim + 31) & ~(size_t)31;
    return q * (2 * v + k + 4) + 64 * (2 * k + v + v / 32) + 64;
}
