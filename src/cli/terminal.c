/* terminal.c: what people see while they wait. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

char *cli_bytes(char out[32], uint64_t bytes) {
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1000 && unit < 5) value /= 1000, unit++;
    snprintf(out, 32, unit == 0 ? "%.0f %s" : "%.3g %s", value, units[unit]);
    return out;
}

void cli_progress(void *unused, const char *what, uint64_t done, uint64_t total) {
    (void)unused;
    static uint64_t last;
    bool terminal = isatty(STDERR_FILENO) == 1;
    bool end = done >= total;
    if (!terminal) return;
    uint64_t now = clock_ns();
    if (!end && now - last < 50000000u) return;
    last = now;
    if (end) {
        fprintf(stderr, "\r\033[K");
        last = 0;
        return;
    }
    char bar[31] = {0}, a[32], b[32];
    int filled = total ? (int)(30.0 * (double)done / (double)total) : 0;
    for (int i = 0; i < 30; i++) bar[i] = i < filled ? '#' : '.';
    fprintf(stderr, "\r\033[K%s [%s] %3.0f%%  %s of %s", what, bar, total ? 100.0 * (double)done / (double)total : 0, cli_bytes(a, done),
            cli_bytes(b, total));
    fflush(stderr);
}
