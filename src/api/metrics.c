/* metrics.c: what happened so far, in the text format of Prometheus. */
#include <inttypes.h>
#include <string.h>

#include "api/inner.h"

static void head(buf *b, const char *name, const char *type, const char *help) { buf_addf(b, NULL, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type); }

static void counter(buf *b, const char *name, const char *help, uint64_t value) {
    head(b, name, "counter", help);
    buf_addf(b, NULL, "%s %" PRIu64 "\n", name, value);
}

static void gauge(buf *b, const char *name, const char *help, double value) {
    head(b, name, "gauge", help);
    buf_addf(b, NULL, "%s %.15g\n", name, value);
}

static void histogram_lines(buf *b, const char *name, const char *help, const loop_histogram *h) {
    head(b, name, "histogram", help);
    uint64_t sum = 0;
    for (int i = 0; i < LOOP_BUCKETS; i++) {
        sum += h->counts[i];
        buf_addf(b, NULL, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, loop_bounds[i], sum);
    }
    sum += h->counts[LOOP_BUCKETS];
    buf_addf(b, NULL, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.9g\n%s_count %" PRIu64 "\n", name, sum, name, h->sum, name, sum);
}

static void weight_lines(buf *b, const hearth_weights_stats *w) {
    counter(b, "hearth_weights_requests_total", "Matrices asked for.", w->requests);
    counter(b, "hearth_weights_hits_total", "Of those, packed already.", w->hits);
    counter(b, "hearth_weights_misses_total", "Of those, not packed.", w->misses);
    counter(b, "hearth_weights_evictions_total", "Packed matrices given up for want of room.", w->evictions);
    gauge(b, "hearth_weights_packed_bytes", "Packed weights.", (double)w->packed_bytes);
    gauge(b, "hearth_weights_mapped_bytes", "Of those, in the file of an earlier start.", (double)w->mapped_bytes);
    gauge(b, "hearth_weights_raw_bytes", "Weights used as they are in the model file.", (double)w->raw_bytes);
    gauge(b, "hearth_weights_saved_seconds", "Packing that was not needed again.", w->saved_seconds);
}

/* One number for each tier. */
static void tiers(buf *b, const char *name, const char *type, const char *help, double hot, double warm) {
    head(b, name, type, help);
    buf_addf(b, NULL, "%s{tier=\"hot\"} %.15g\n%s{tier=\"warm\"} %.15g\n", name, hot, name, warm);
}

static void kv_lines(buf *b, const loop_stats *s, const hearth_kv_stats *k) {
    counter(b, "hearth_kv_hits_total", "Requests of which a prefix was remembered.", s->hits);
    counter(b, "hearth_kv_misses_total", "Requests of which nothing was.", s->misses);
    tiers(b, "hearth_kv_tokens_remembered_total", "counter", "Prompt tokens found in memory (hot) or on disk (warm) and not computed.", (double)s->hot_tokens, (double)s->warm_tokens);
    tiers(b, "hearth_kv_saved_seconds_total", "counter", "What computing them would have taken, at the mean speed of those computed.", s->hot_saved_s, s->warm_saved_s);
    tiers(b, "hearth_kv_bytes", "gauge", "Keys and values in memory, those in use included, and all that is on disk.", (double)k->hot_bytes, (double)k->warm_bytes);
    tiers(b, "hearth_kv_budget_bytes", "gauge", "What they may take.", (double)k->hot_budget, (double)k->warm_budget);
    tiers(b, "hearth_kv_blocks", "gauge", "Blocks of 64 tokens that can be found.", (double)k->hot_blocks, (double)k->warm_blocks);
    tiers(b, "hearth_kv_evictions_total", "counter", "Blocks given up for want of room.", (double)k->hot_evictions, (double)k->warm_evictions);
    gauge(b, "hearth_kv_running_bytes", "Of those in memory: of running sequences.", (double)s->kv_bytes);
    gauge(b, "hearth_kv_blocks_in_use", "Blocks that run or wait to be written.", (double)k->blocks_in_use);
    gauge(b, "hearth_agents", "Agents on disk.", (double)k->agents);
    gauge(b, "hearth_store_degraded", "1 while the disk fails or is full and conversations are in memory only.", k->degraded);
    counter(b, "hearth_store_written_blocks_total", "Blocks written.", k->written_blocks);
    counter(b, "hearth_store_written_bytes_total", "Bytes of those.", k->written_bytes);
    counter(b, "hearth_store_saves_total", "Agents written.", k->saves);
    counter(b, "hearth_store_skipped_total", "Blocks not written: no room, or too many waited.", k->skipped);
    counter(b, "hearth_store_failures_total", "Writes that failed.", k->failures);
    counter(b, "hearth_store_damaged_total", "Files set aside because they did not check out.", k->damaged);
    gauge(b, "hearth_store_waiting", "Blocks and agents that wait to be written.", (double)k->waiting);
    gauge(b, "hearth_store_write_seconds_total", "Time spent writing.", k->write_seconds);
    gauge(b, "hearth_store_load_seconds_total", "Time spent reading and checking, beside computing.", k->load_seconds);
    gauge(b, "hearth_store_load_wait_seconds_total", "Time that computing waited for that.", k->load_wait_seconds);
}

void route_metrics(api *a, http_request *r) {
    hearth_weights_stats w;
    hearth_kv_stats kv;
    loop_stats s = api_count(a, &w, &kv);
    buf b = {0};
    counter(&b, "hearth_requests_total", "Requests accepted for generation.", s.requests);
    counter(&b, "hearth_requests_refused_total", "Requests refused because too many waited.", s.refused);
    counter(&b, "hearth_answers_finished_total", "Answers completed.", s.finished);
    counter(&b, "hearth_answers_failed_total", "Answers that failed or ran out of time.", s.failed);
    counter(&b, "hearth_answers_cancelled_total", "Answers whose client left.", s.cancelled);
    counter(&b, "hearth_prompt_tokens_total", "Tokens of prompts that were asked.", s.prompt_tokens);
    counter(&b, "hearth_prompt_tokens_computed_total", "Tokens of prompts that had to be computed.", s.computed_tokens);
    counter(&b, "hearth_prompt_tokens_remembered_total", "Tokens of prompts that were remembered and not computed.", s.hot_tokens + s.warm_tokens);
    counter(&b, "hearth_completion_tokens_total", "Tokens generated.", s.completion_tokens);
    counter(&b, "hearth_passes_total", "Passes through the model.", s.passes);
    counter(&b, "hearth_pass_tokens_total", "Tokens computed in those passes; over passes: the batch size.", s.pass_tokens);
    counter(&b, "hearth_passes_late_total", "Passes that went on without the prompts they held, which would have kept streams waiting longer than --max-stall.", s.late);
    counter(&b, "hearth_preemptions_total", "Sequences sent back to the queue for want of memory.", s.preemptions);
    gauge(&b, "hearth_running", "Sequences computed now.", s.running);
    gauge(&b, "hearth_waiting", "Sequences that wait.", s.waiting);
    gauge(&b, "hearth_prompt_chunk_tokens", "Prompt tokens that are read at once beside running streams.", s.chunk);
    kv_lines(&b, &s, &kv);
    histogram_lines(&b, "hearth_first_token_seconds", "From request to first token.", &s.first_token);
    histogram_lines(&b, "hearth_between_tokens_seconds", "Between two tokens of a stream.", &s.between_tokens);
    histogram_lines(&b, "hearth_pass_seconds", "One pass through the model.", &s.pass);
    histogram_lines(&b, "hearth_answer_seconds", "From request to the end of an answer.", &s.total);
    weight_lines(&b, &w);
    head(&b, "hearth_replies_total", "counter", "Replies by class of status.");
    for (int i = 2; i < 6; i++) buf_addf(&b, NULL, "hearth_replies_total{status=\"%dxx\"} %" PRIu64 "\n", i, (uint64_t)a->statuses[i]);
    a->statuses[2]++;
    http_reply(r, 200, "text/plain; version=0.0.4; charset=utf-8", b.data, b.len);
    buf_free(&b);
}
