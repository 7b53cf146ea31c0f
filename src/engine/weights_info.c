/* weights_info.c: the weight cache's counts, as hearth.h gives them out. */
#include <stdio.h>

#include "engine/engine.h"

hearth_weights_stats hearth_engine_weights(const hearth_engine *en) {
    return en->cache ? weights_get_stats(en->cache) : (hearth_weights_stats){.hit_rate = 1};
}

size_t hearth_engine_weight_count(const hearth_engine *en) { return en->cache ? (size_t)weights_count(en->cache) : 0; }

hearth_weight_stats hearth_engine_weight_at(const hearth_engine *en, size_t i) {
    return i < hearth_engine_weight_count(en) ? weights_entry_get(en->cache, (int)i) : (hearth_weight_stats){.name = "", .slice = -1};
}

size_t hearth_engine_hottest_weights(const hearth_engine *en, hearth_weight_stats *out, size_t cap) {
    enum { MOST = 256 };
    int ids[MOST], n = en->cache ? weights_hottest(en->cache, ids, cap < MOST ? (int)cap : MOST) : 0;
    for (int i = 0; i < n; i++) out[i] = weights_entry_get(en->cache, ids[i]);
    return (size_t)n;
}

const char *hearth_engine_self_check(const hearth_engine *en) { return en->cache ? weights_self_check(en->cache) : ""; }

char *hearth_engine_cache_state(const hearth_engine *en, char *out, size_t cap) {
    if (en->cache) weights_describe(en->cache, out, cap);
    else snprintf(out, cap, "no weights are loaded");
    return out;
}

void hearth_engine_settle(const hearth_engine *en) {
    if (en->cache) weights_settle(en->cache);
}
