/* recall.h: what an engine remembers of conversations, in memory and on disk, for sessions and for whoever else computes on the engine.
 *
 * The use: set a sequence up with recall_start, before computing ask recall_find for what is known, after computing tell recall_keep. */
#ifndef ENGINE_RECALL_H
#define ENGINE_RECALL_H

#include "engine/engine.h"

/* Opens what the options ask for. A folder that cannot be used costs a warning, not the engine. */
bool recall_open(hearth_engine *en, const hearth_engine_options *o, err *e);
void recall_close(hearth_engine *en);
/* The folder of the store when none is given; freed with mem_free. */
char *recall_folder(const char *given, err *e);

/* Makes seq a sequence of this engine for a tenant (NULL: none), empty. long_context: rotated with the frequencies for long texts. */
void recall_start(hearth_engine *en, kv_seq *seq, const char *tenant, bool long_context);
/* Takes what is known of the first n tokens, in memory and if wanted on disk. Returns how many more the sequence holds. What comes from the disk may still be
 * arriving, which a pass waits for; when it fails because something is damaged (kv_seq_mend), the disk is to be asked once more at most: a file that cannot be
 * set aside is damaged every time. */
size_t recall_find(hearth_engine *en, kv_seq *seq, const int32_t *tokens, size_t n, bool disk);
/* Tells how long computing n tokens in one pass took, without what it waited for the disk: what is found is worth as much time per token. */
void recall_computed(hearth_engine *en, size_t n, uint64_t ns);
/* Seconds that computing one token of a prompt takes, of all that were computed; 0: none was. */
double recall_token_seconds(const hearth_engine *en);
/* Remembers what the sequence holds: tokens are its own. */
void recall_keep(hearth_engine *en, kv_seq *seq, const int32_t *tokens);
/* The same, its partial last block too, and frees it. */
void recall_end(hearth_engine *en, kv_seq *seq, const int32_t *tokens);
/* Has an agent written soon that is where the sequence is: a has its name, tag, time and note, which are taken over; the tokens are all of the sequence's. */
bool recall_save(hearth_engine *en, const kv_seq *seq, const int32_t *tokens, size_t n, agent_record *a, err *e);
/* Lets recall_find know the tail of an agent that was read from disk, too. Returns how many tokens were not in memory. */
size_t recall_tail(hearth_engine *en, const char *tenant, const agent_record *a);
/* Whether the blocks that an agent was saved with can be used as they are: kept in this engine's types of keys and values, for this tenant, and with what windowed layers need to go on from the last
 * full one on disk. Of another model's agents nothing is known: true. */
bool recall_fits(hearth_engine *en, const char *tenant, const agent_record *a);
/* Starts to bring what the disk has of these tokens into memory, so that recall_find need not look for it. whole: returns when it is there, for a pass that
 * others take part in should not wait for it. Returns how many tokens it found. */
size_t recall_warm(hearth_engine *en, const char *tenant, bool long_context, const int32_t *tokens, size_t n, bool whole);

#endif
