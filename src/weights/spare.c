/* spare.c: how much memory the machine has to spare, from the kernel and from the limits of the groups this process is in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weights/inner.h"

/* The number after key at the start of a line of a small system file, or UINT64_MAX. */
static uint64_t number_in(const char *path, const char *key) {
    buf b = {0};
    uint64_t value = UINT64_MAX;
    if (file_read(path, 1 << 20, &b, NULL) && b.data) {
        for (const char *line = b.data; line; line = strchr(line, '\n')) {
            if (*line == '\n') line++;
            if (strncmp(line, key, strlen(key)) != 0) continue;
            const char *digits = line + strlen(key);
            while (*digits == ' ' || *digits == '\t') digits++;
            if (*digits >= '0' && *digits <= '9') value = strtoull(digits, NULL, 10);
            break;
        }
    }
    buf_free(&b);
    return value;
}

/* What a group may still take: its limit, less what it holds, plus what of that is only cached files. */
static uint64_t group_left(const char *folder, const char *limit_name, const char *used_name, const char *cached_key) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, limit_name);
    uint64_t limit = number_in(path, "");
    if (limit == UINT64_MAX || limit > 1ull << 60) return UINT64_MAX;
    snprintf(path, sizeof path, "%s/%s", folder, used_name);
    uint64_t used = number_in(path, "");
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    uint64_t cached = number_in(path, cached_key);
    if (used == UINT64_MAX) used = 0;
    if (cached != UINT64_MAX) used = used > cached ? used - cached : 0;
    return limit > used ? limit - used : 0;
}

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* The limits of this process's group and of those around it, for both versions of the kernel's interface. */
static uint64_t groups_left(void) {
    buf b = {0};
    uint64_t left = UINT64_MAX;
    file_read("/proc/self/cgroup", 1 << 20, &b, NULL);
    char *save = NULL;
    for (char *line = b.data ? strtok_r(b.data, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
        char *name = strchr(line, ':'), *path = name ? strchr(name + 1, ':') : NULL;
        if (!path || strlen(path) > 700) continue;
        *path++ = 0;
        bool second = name[1] == 0, first = strstr(name + 1, "memory") != NULL;
        if (!first && !second) continue;
        for (char *end = path + strlen(path);;) {
            char folder[900];
            snprintf(folder, sizeof folder, "/sys/fs/cgroup%s%s", second ? "" : "/memory", path);
            if (second) left = smaller(left, group_left(folder, "memory.max", "memory.current", "inactive_file "));
            else left = smaller(left, group_left(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "));
            if (end == path) break;
            while (end > path && *--end != '/') {}
            *end = 0;
        }
    }
    buf_free(&b);
    return left;
}

uint64_t spare_memory(void) {
    uint64_t available = number_in("/proc/meminfo", "MemAvailable:");
    available = available == UINT64_MAX ? 0 : available * 1024;
    available = smaller(available, groups_left());
    /* The rest is for conversations and for everyone else. */
    return available / 4 * 3;
}
