/* hearth.h: the only header a program needs.
 *
 *   engine   a loaded model: weights, tokenizer, chat template. Shared by any number of sessions.
 *   session  one conversation: its tokens and their keys and values.
 *   sampler  how the next token is chosen, with its own random state.
 *
 * Ownership: every hearth_*_open / _new has one matching _close / _free, which accepts NULL.
 * Functions that can fail take a hearth_error (may be NULL) and return false, NULL or -1 as stated.
 * An engine may be used from several threads at once; a session or sampler from one at a time. */
#ifndef HEARTH_H
#define HEARTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HEARTH_API __attribute__((visibility("default")))
#else
#define HEARTH_API
#endif

#define HEARTH_VERSION "0.1.0"

/* ---- errors ---- */

/* X(name, text) for every way to fail; the text is the short form, the message says the rest. */
#define HEARTH_CODES(X)                                                                            \
    X(OK, "ok")                                                                                    \
    X(ARGUMENT, "bad argument")                                                                    \
    X(FORMAT, "bad file or input")                                                                 \
    X(UNSUPPORTED, "not supported")                                                                \
    X(IO, "input/output error")                                                                    \
    X(MEMORY, "out of memory")                                                                     \
    X(LIMIT, "limit reached")                                                                      \
    X(CANCELLED, "cancelled")

typedef enum hearth_code {
#define X(name, text) HEARTH_##name,
    HEARTH_CODES(X)
#undef X
} hearth_code;

/* One sentence that a user can act on. Plain value; nothing to free. */
typedef struct hearth_error {
    hearth_code code;
    char text[512];
} hearth_error;

HEARTH_API const char *hearth_code_text(hearth_code code);
HEARTH_API const char *hearth_version(void);

/* ---- engine ---- */

typedef struct hearth_engine hearth_engine;

typedef struct hearth_engine_options {
    const char *cpu;   /* kernel set: NULL or "auto" picks the best, "ref" is exact, else a name from hearth_cpu_names */
    int threads;       /* 0: one per core */
    int context;       /* most tokens a session may hold; 0: what the model was trained for */
    bool vocab_only;   /* load only the tokenizer and template; sessions cannot be made */
    /* Called while loading, done and total in bytes; may be NULL. */
    void (*progress)(void *user, const char *what, uint64_t done, uint64_t total);
    void *progress_user;
    /* The weight cache. Weights are packed for the kernels once, kept in memory, and on disk for the next start. */
    uint64_t weights_memory;   /* bytes of packed weights, mapped ones too; HEARTH_AUTO: what the machine has to spare */
    const char *preload;       /* "all" (NULL), "critical" (output and first layers) or "none" are ready before open returns */
    bool weights_frequency;    /* when memory is short: what is used most stays; false: what was used last */
    float weights_window;      /* seconds over which use is counted */
    int prefetch;              /* layers made ready ahead when memory is short; -1: as is best */
    bool prefetch_async;       /* by a thread of its own */
    bool cache;                /* keep packed weights on disk */
    const char *cache_dir;     /* NULL: $XDG_CACHE_HOME/hearth or ~/.cache/hearth */
    uint64_t cache_bytes;      /* most that all packed weights in it may take; HEARTH_AUTO: half of what the disk would have without them */
    /* Conversations. Keys and values once computed are found again by their tokens, by any session of the same tenant. */
    const char *kv_type;       /* keys and values as "f16", "q8_0" or "q4_0", or apart as in "q8_0,q4_0"; NULL: f16, or float where cpu is "ref" */
    uint64_t kv_memory;        /* bytes of keys and values, those in use included; HEARTH_AUTO: a part of what the machine has to spare; 0: nothing is kept */
    bool store;                /* keep them on disk too: needed for agents */
    const char *store_dir;     /* NULL: $XDG_DATA_HOME/hearth/kv or ~/.local/share/hearth/kv */
    uint64_t kv_disk;          /* most bytes on disk; HEARTH_AUTO: half of what the disk would have without them */
    /* What went wrong without being an error, as one sentence, from any thread; may be NULL. */
    void (*warn)(void *user, const char *sentence);
    void *warn_user;
} hearth_engine_options;

#define HEARTH_AUTO UINT64_MAX

/* Options must come from here, so that those a program does not know have sound values. */
HEARTH_API hearth_engine_options hearth_engine_defaults(void);
/* Loads the GGUF file at path (the first part of a split file). NULL on failure. */
HEARTH_API hearth_engine *hearth_engine_open(const char *path, const hearth_engine_options *options, hearth_error *error);
/* Every session of the engine must be freed before. Waits until packed weights and conversations that are being written are complete. */
HEARTH_API void hearth_engine_close(hearth_engine *engine);

/* Facts about the model; strings are owned by the engine. */
typedef struct hearth_model_info {
    const char *architecture;
    const char *name;           /* "" when the file has none */
    const char *cpu;            /* the kernel set in use */
    const char *chat_template;  /* NULL when the file has none */
    int threads;
    int n_vocab;
    int n_layers;
    int n_embd;
    int n_context;              /* most tokens a session may hold */
    int n_context_train;
    uint64_t n_parameters;
    uint64_t n_weight_bytes;
    uint64_t kv_bytes_per_token;
} hearth_model_info;
HEARTH_API hearth_model_info hearth_engine_info(const hearth_engine *engine);

/* The weight cache at work. Only matrices that have a packed form for this kernel set are counted, except in raw_bytes. */
typedef struct hearth_weights_stats {
    int entries, ready;         /* matrices, and how many of them are packed now */
    uint64_t requests, hits, misses; /* asked for; packed when asked for; not */
    uint64_t waits;             /* requests that waited for another thread's packing */
    uint64_t evictions, makes, prefetches;
    double hit_rate;            /* 1 when nothing was asked for */
    uint64_t packed_bytes;      /* of the forms that requests get now: packed ... */
    uint64_t mapped_bytes;      /* ... of these, in the mapped file ... */
    uint64_t raw_bytes;         /* ... and as in the model file */
    uint64_t packed_total;      /* if all were packed */
    uint64_t memory, used;      /* the budget, and what is taken of it */
    bool memory_auto;           /* the budget is what the machine had to spare */
    bool mapped, writing, written; /* a packed file of an earlier start is in use; this process is writing one; has written one */
    double make_seconds, saved_seconds, preload_seconds; /* spent on packing; what hits would have cost; of open */
    int preloaded, lost;        /* made ready by open; of those, no longer ready at the first request */
} hearth_weights_stats;
HEARTH_API hearth_weights_stats hearth_engine_weights(const hearth_engine *engine);

typedef struct hearth_weight_stats {
    const char *name;           /* of the tensor; owned by the engine */
    int slice;                  /* which expert; -1 for a plain matrix */
    int layer;                  /* the output comes after the last */
    bool packed, mapped, pinned;
    uint64_t bytes;             /* of the form that a request gets now */
    uint64_t requests, hits, misses, evictions, makes;
    double make_seconds;        /* mean cost of packing it; 0 when unknown */
    double saved_seconds;
    uint32_t last_minute;       /* requests */
} hearth_weight_stats;
HEARTH_API size_t hearth_engine_weight_count(const hearth_engine *engine);
HEARTH_API hearth_weight_stats hearth_engine_weight_at(const hearth_engine *engine, size_t i);
/* The most asked for in the last minute, most first; returns how many were written. */
HEARTH_API size_t hearth_engine_hottest_weights(const hearth_engine *engine, hearth_weight_stats *out, size_t cap);
/* "" or a sentence: what was found at the first request when something that open had made ready no longer was. */
HEARTH_API const char *hearth_engine_self_check(const hearth_engine *engine);
/* One sentence on where packed weights are kept, or why not. Returns out. */
HEARTH_API char *hearth_engine_cache_state(const hearth_engine *engine, char *out, size_t cap);
/* Waits until nothing is being packed or written in the background. */
HEARTH_API void hearth_engine_settle(const hearth_engine *engine);

/* NULL-terminated names of the kernel sets this build has, best first; *usable tells which run on this CPU. */
HEARTH_API const char *const *hearth_cpu_names(void);
HEARTH_API bool hearth_cpu_usable(const char *name);

/* ---- text ---- */

enum { HEARTH_TOKEN_NONE = -1 };
enum {
    HEARTH_PARSE_SPECIAL = 1, /* strings such as <|im_start|> become their token */
    HEARTH_ADD_BOS = 2,       /* put the begin-of-text token first when the model wants one */
    HEARTH_ADD_EOS = 4,       /* put the end-of-text token last when the model wants one: for hearth_embed */
};

/* Writes the tokens of text to out (room for cap) and returns how many there are, which may be more
 * than cap: call again with more room. -1 on failure. */
HEARTH_API int64_t hearth_tokenize(const hearth_engine *engine, const char *text, size_t len, unsigned flags,
                                   int32_t *out, size_t cap, hearth_error *error);
/* The exact bytes of one token, owned by the engine; *len is set. NULL for a token out of range.
 * Control tokens have no bytes unless special is true. */
HEARTH_API const char *hearth_token_bytes(const hearth_engine *engine, int32_t token, bool special, size_t *len);
HEARTH_API int32_t hearth_token_bos(const hearth_engine *engine); /* or HEARTH_TOKEN_NONE */
HEARTH_API int32_t hearth_token_eos(const hearth_engine *engine);
/* True for every token that ends an answer (end of text, end of turn). */
HEARTH_API bool hearth_token_ends(const hearth_engine *engine, int32_t token);

/* Renders the model's chat template. variables_json is a JSON object with at least "messages";
 * bos_token, eos_token and add_generation_prompt=true are filled in when absent. The result is
 * NUL-terminated and freed with hearth_free; *len (may be NULL) is its length. */
HEARTH_API char *hearth_chat_render(const hearth_engine *engine, const char *variables_json, size_t *len, hearth_error *error);
HEARTH_API void hearth_free(void *memory);

/* ---- grammar ---- */

typedef enum hearth_grammar_kind {
    HEARTH_GRAMMAR_GBNF,        /* rules in the GBNF notation */
    HEARTH_GRAMMAR_JSON_SCHEMA, /* a JSON schema; keywords that are not supported are refused by name */
    HEARTH_GRAMMAR_REGEX,       /* a regular expression that the whole answer matches */
    HEARTH_GRAMMAR_JSON,        /* any JSON object; the text is not looked at */
} hearth_grammar_kind;

/* What an answer must look like. May be shared by any number of samplers, also in several threads, and remembers what it found out for
 * all of them: make it once and keep it. */
typedef struct hearth_grammar hearth_grammar;
/* NULL on failure. The engine must outlive the grammar. */
HEARTH_API hearth_grammar *hearth_grammar_new(hearth_engine *engine, hearth_grammar_kind kind, const char *text, size_t len, hearth_error *error);
/* Samplers that use it keep it until they are freed. */
HEARTH_API void hearth_grammar_free(hearth_grammar *grammar);

/* ---- sampler ---- */

typedef struct hearth_logit_bias {
    int32_t token;
    float bias; /* minus infinity bans the token */
} hearth_logit_bias;

typedef struct hearth_sampler_options {
    float temperature;         /* 0: always the most likely token */
    int top_k;                 /* 0: off */
    float top_p;               /* 1: off */
    float min_p;               /* 0: off */
    float typical_p;           /* 1: off */
    float repeat_penalty;      /* 1: off */
    float frequency_penalty;   /* 0: off */
    float presence_penalty;    /* 0: off */
    int penalty_last_n;        /* tokens the three penalties look back; 0: off, -1: all */
    float dry_multiplier;      /* 0: off */
    float dry_base;
    int dry_allowed_length;
    int dry_last_n;            /* 0: off, -1: all */
    const char *const *dry_breakers; /* NULL-terminated; NULL: newline, colon, quote, asterisk. Found in the text also across tokens */
    const hearth_logit_bias *logit_bias;
    size_t n_logit_bias;
    uint64_t seed;             /* same seed, same text */
    hearth_grammar *grammar;   /* what the answer must look like, made for the same engine; NULL: anything. It begins anew with each answer */
} hearth_sampler_options;

typedef struct hearth_sampler hearth_sampler;
/* Temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, no penalties, seed 0. */
HEARTH_API hearth_sampler_options hearth_sampler_defaults(void);
/* Options (NULL: the defaults) are checked and copied; the engine must outlive the sampler. NULL on failure. Given the same
 * logits and seed, the same tokens are chosen on every machine. */
HEARTH_API hearth_sampler *hearth_sampler_new(const hearth_engine *engine, const hearth_sampler_options *options, hearth_error *error);
HEARTH_API void hearth_sampler_free(hearth_sampler *sampler);
/* Tells the sampler of a token that is now part of the text (prompt or answer), for the penalties, DRY and the grammar. Only for
 * programs that pick tokens themselves: hearth_generate tells the sampler of every token of the session. What was accepted before the
 * first pick is the prompt, which the grammar does not look at; from then on a token that it does not allow is refused. */
HEARTH_API bool hearth_sampler_accept(hearth_sampler *sampler, int32_t token, hearth_error *error);
/* Chooses from n_vocab logits, which are left unchanged: bias, penalties, DRY, grammar, then top-k, typical, top-p, min-p, temperature.
 * Does not accept it. HEARTH_TOKEN_NONE on failure: every logit is NaN or minus infinity, or the grammar allows no token. */
HEARTH_API int32_t hearth_sampler_pick(hearth_sampler *sampler, const float *logits, hearth_error *error);

typedef struct hearth_logprob {
    int32_t token;
    float logprob;
} hearth_logprob;
/* The log-probability of token (minus infinity when out of range), and the n most likely tokens with theirs (before bias,
 * penalties and sampling), best first; places beyond the vocabulary get HEARTH_TOKEN_NONE. */
HEARTH_API float hearth_logprobs(const hearth_engine *engine, const float *logits, int32_t token, hearth_logprob *top, size_t n);

/* ---- session ---- */

typedef struct hearth_session hearth_session;
HEARTH_API hearth_session *hearth_session_new(hearth_engine *engine, hearth_error *error);
HEARTH_API void hearth_session_free(hearth_session *session);
/* Computes n more tokens. On failure the session is as before. */
HEARTH_API bool hearth_session_append(hearth_session *session, const int32_t *tokens, size_t n, hearth_error *error);
/* Logits after the last appended token, n_vocab of them, owned by the session until the next call on it; NULL when empty. */
HEARTH_API const float *hearth_session_logits(hearth_session *session);
HEARTH_API size_t hearth_session_length(const hearth_session *session);
HEARTH_API const int32_t *hearth_session_tokens(const hearth_session *session);
/* Forgets every token from position on. The last token kept is computed again when its logits are asked for. */
HEARTH_API bool hearth_session_rewind(hearth_session *session, size_t position, hearth_error *error);

/* ---- agents: sessions that are remembered by name ---- */

/* A session of a tenant (any text; NULL: none): what one tenant's sessions computed is never found by another's. With an agent's name (1 to 64 bytes of UTF-8;
 * NULL: a plain session) it goes on where that agent was, computing at most its last token; an agent not known yet starts empty. The agent
 * is saved whenever hearth_generate ends and when the session is freed. NULL on failure: the agent is open elsewhere, belongs to another model, or the engine was
 * opened without a store. */
HEARTH_API hearth_session *hearth_session_open(hearth_engine *engine, const char *agent, const char *tenant, hearth_error *error);
/* A plain session with the same content and tenant. No keys or values are copied. */
HEARTH_API hearth_session *hearth_session_fork(hearth_session *session, hearth_error *error);
/* Returns when the agent as it is now is on disk. */
HEARTH_API bool hearth_session_save(hearth_session *session, hearth_error *error);
/* Forgets the agent: its file is deleted and the session goes on as a plain one. */
HEARTH_API bool hearth_session_drop(hearth_session *session, hearth_error *error);
/* Some bytes of the program's own (such as the messages of a chat) that are kept with the agent. Owned by the session; NULL when there are none. */
HEARTH_API const char *hearth_session_note(const hearth_session *session, size_t *len);
HEARTH_API bool hearth_session_set_note(hearth_session *session, const char *note, size_t len, hearth_error *error);

/* What is remembered of conversations: in memory (hot) and on disk (warm). */
typedef struct hearth_kv_stats {
    uint64_t hot_blocks, hot_bytes, hot_budget, hot_evictions; /* bytes: those in use included */
    uint64_t blocks_in_use;
    uint64_t lookups, hits;              /* prompts looked up, and those of which something was known */
    uint64_t tokens_asked, tokens_found; /* found without computing; of these from disk: */
    uint64_t tokens_loaded;
    bool store;                          /* there is one */
    bool degraded;                       /* the disk fails or is full: in memory only for now */
    uint64_t warm_blocks, warm_bytes, warm_budget, warm_evictions, agents;
    uint64_t written_blocks, written_bytes, saves, waiting, skipped, failures, damaged;
    double write_seconds, load_seconds, longest_write, scan_seconds;
    /* By tier: prompts of which something was found there, and those of which nothing was (those that memory knew whole do not ask the disk); tokens found there
     * (on disk: tokens_loaded) and the time that computing them would have taken at the speed measured in this process (0: nothing measured yet). */
    uint64_t hot_hits, hot_misses, hot_tokens, warm_hits, warm_misses;
    double prefill_speed;                /* tokens per second; 0: nothing measured yet */
    double hot_saved_seconds, warm_saved_seconds;
    double longest_load;                 /* from when a block was asked for until it was there; load_seconds: spent on reading and checking, beside computing */
    double load_wait_seconds;            /* that computing waited for it */
    double save_seconds, longest_save;   /* of agents, from the end of the turn until it was on disk; save_seconds: all saves together */
    double stall_seconds;                /* that computing waited for remembering */
} hearth_kv_stats;
HEARTH_API hearth_kv_stats hearth_engine_kv(const hearth_engine *engine);

/* A self-check of what is on disk: every file is read and compared with its checksum. */
typedef struct hearth_kv_check {
    uint64_t whole, damaged, unreadable; /* files; damaged ones are computed again when they are needed */
    uint64_t set_aside;                  /* of the damaged ones, moved out of the way */
} hearth_kv_check;
HEARTH_API bool hearth_engine_kv_check(hearth_engine *engine, hearth_kv_check *out, hearth_error *error);

/* The agents of a tenant as they were last saved. */
typedef enum hearth_tier {
    HEARTH_TIER_COLD, /* keys and values must be computed again, or some of them */
    HEARTH_TIER_WARM, /* they are on disk */
    HEARTH_TIER_HOT,  /* in memory */
} hearth_tier;
typedef struct hearth_agent {
    const char *name;              /* until the function that got it returns */
    size_t tokens, blocks;         /* blocks: on disk */
    uint64_t bytes, block_bytes;   /* on disk: its own, and of blocks, which it may share */
    hearth_tier tier;
    int64_t created, used;         /* seconds since 1970 */
    uint64_t hits;                 /* how often it was opened and something of it was found */
    bool pinned, this_model;       /* this_model: it belongs to the engine's */
} hearth_agent;
/* Calls each for every agent until it returns false. */
HEARTH_API bool hearth_agents(hearth_engine *engine, const char *tenant, bool (*each)(void *user, const hearth_agent *agent), void *user, hearth_error *error);
/* A new agent that goes on where another was last saved; HEARTH_ARGUMENT when there is none, or one of the new name already. */
HEARTH_API bool hearth_agent_fork(hearth_engine *engine, const char *from, const char *to, const char *tenant, hearth_error *error);
/* What was computed for a pinned agent is never evicted from the disk. */
HEARTH_API bool hearth_agent_pin(hearth_engine *engine, const char *name, const char *tenant, bool pinned, hearth_error *error);
/* An agent with all that was computed for it in one file, for another machine with the same model; and from there, under its own name (NULL) or another. The tenant
 * must be the same on both sides. Every byte is checked on the way in, but not whether keys and values are those that the model computes: import what you trust. */
HEARTH_API bool hearth_agent_export(hearth_engine *engine, const char *name, const char *tenant, const char *path, hearth_error *error);
HEARTH_API bool hearth_agent_import(hearth_engine *engine, const char *path, const char *name, const char *tenant, hearth_error *error);

/* ---- embeddings ---- */

/* One vector of n_embd floats and length 1 for a text of at least one token: the mean of the final normed hidden states, or what the file's pooling
 * type names (the first or the last one). Fails for files that rank texts instead. Costs a pass over all tokens: nothing is remembered. */
HEARTH_API bool hearth_embed(hearth_engine *engine, const int32_t *tokens, size_t n, float *out, hearth_error *error);

typedef enum hearth_finish {
    HEARTH_FINISH_LENGTH, /* max_tokens or the context is full */
    HEARTH_FINISH_END,    /* the model ended its answer */
    HEARTH_FINISH_STOP,   /* a stop string */
    HEARTH_FINISH_CALLER, /* on_text returned false */
} hearth_finish;

typedef struct hearth_generate_options {
    int max_tokens;           /* -1: until the model ends or the context is full */
    const char *const *stop;  /* NULL-terminated stop strings, or NULL; never part of the text given out */
    bool ignore_end;          /* go on past end-of-answer tokens */
    bool show_special;        /* give out the text of control tokens too */
    /* Whole UTF-8 characters, as soon as they are certain (bytes that can never become one pass through
     * unchanged). Called after every token, with len 0 when nothing is certain yet. Return false to stop. May be NULL. */
    bool (*on_text)(void *user, const char *text, size_t len);
    /* Every token picked, with the logits it was picked from. May be NULL. */
    void (*on_token)(void *user, int32_t token, const float *logits);
    void *user;
} hearth_generate_options;

typedef struct hearth_generated {
    hearth_finish finish;
    int n_tokens;            /* tokens generated and kept in the session */
} hearth_generated;

HEARTH_API hearth_generate_options hearth_generate_defaults(void);
/* Generates from where the session is; it must hold at least one token. The generated tokens stay in the session, so after
 * FINISH_LENGTH or FINISH_CALLER a second call goes on as if there had been one. The token that ended the answer (FINISH_END) or
 * completed the stop string (FINISH_STOP) is given to on_token but not kept: the next turn's text brings the ending token itself. */
HEARTH_API bool hearth_generate(hearth_session *session, hearth_sampler *sampler, const hearth_generate_options *options,
                                hearth_generated *result, hearth_error *error);

#ifdef __cplusplus
}
#endif
#endif
