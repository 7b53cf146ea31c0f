/* grammar_machine.h: where texts are in a network.
 *
 * A frame is a place to return to and the frame below it. An item is a node and a frame: one way the text so far can be read. A config is
 * the set of all of them, numbered; frames and configs that are equal are the same one, so that a step from a config by a byte is
 * computed once. Frame 0 is below everything: the text ends there. Frame 1 is a stack that is not known. */
#ifndef ENGINE_GRAMMAR_MACHINE_H
#define ENGINE_GRAMMAR_MACHINE_H

#include "engine/grammar_net.h"

enum { FRAME_END = 0, FRAME_UNKNOWN = 1, FRAME_FIRST = 2 };
enum { CONFIG_DEAD = -1, CONFIG_UNTRIED = -2, CONFIG_FAILED = -3 };
#define FRAME_LOOP 0x80000000u /* in grammar_frame.node: the rest is a fragment */
#define ITEM_DONE 0xFFFFFFFFu  /* the node of an item that has returned to frame 0 or 1 */

typedef struct grammar_frame {
    uint32_t node;   /* where to go on, or FRAME_LOOP | fragment */
    uint32_t count;  /* of a loop: how often its body has been passed when it returns here */
    uint32_t parent; /* always a lower number */
} grammar_frame;

static inline uint64_t item_of(uint32_t node, uint32_t frame) { return (uint64_t)node << 32 | frame; }
static inline uint32_t item_node(uint64_t item) { return (uint32_t)(item >> 32); }
static inline uint32_t item_frame(uint64_t item) { return (uint32_t)item; }

enum { CONFIG_ENDS = 1, CONFIG_LEAVES = 2 }; /* an item is done at frame 0; at frame 1 */

typedef struct grammar_config {
    size_t first;
    uint32_t n;
    int32_t mask; /* for grammar_mask.c: -1 when there is none */
} grammar_config;

/* A hash table of numbers + 1. */
typedef struct grammar_slots {
    uint32_t *slots;
    size_t cap; /* a power of two */
} grammar_slots;

typedef struct grammar_machine {
    const grammar_net *net;
    grammar_frame *frames;
    size_t n_frames, cap_frames;
    grammar_slots frame_slots, config_slots;
    grammar_config *configs;
    uint8_t *config_flags;
    size_t n_configs, cap_configs, cap_config_flags;
    uint64_t *items;
    size_t n_items, cap_items;
    int32_t *steps; /* net->n_classes for each config */
    size_t cap_steps;
    /* One step at a time: what it has seen, what is left to do, what it found. */
    uint64_t *seen, *todo, *found;
    uint32_t *seen_when, now;
    size_t n_seen, n_todo, n_found;
    uint64_t effort; /* items handled since it was set to 0 */
    uint64_t max_effort;
    size_t max_bytes; /* of tables, while one mask is made */
} grammar_machine;

bool grammar_machine_make(grammar_machine *m, const grammar_net *net, err *e);
void grammar_machine_free(grammar_machine *m);
size_t grammar_machine_bytes(const grammar_machine *m);

/* Config numbers, CONFIG_DEAD, or CONFIG_FAILED with e set. */
int32_t grammar_machine_start(grammar_machine *m, err *e);
int32_t grammar_machine_step_new(grammar_machine *m, int32_t config, uint32_t byte_class, err *e);
static inline int32_t grammar_machine_step(grammar_machine *m, int32_t config, uint32_t byte_class, err *e) {
    int32_t next = m->steps[(size_t)config * m->net->n_classes + byte_class];
    return next != CONFIG_UNTRIED ? next : grammar_machine_step_new(m, config, byte_class, e);
}
/* The config after returning to a frame. */
int32_t grammar_machine_return(grammar_machine *m, uint32_t frame, err *e);
/* The config of n items, which are put in order. */
int32_t grammar_machine_config(grammar_machine *m, uint64_t *items, size_t n, err *e);
/* UINT32_MAX with e set on failure. */
uint32_t grammar_machine_frame(grammar_machine *m, grammar_frame frame, err *e);

/* Forgets everything but the configs whose numbers stand in keep, which become their new numbers. */
bool grammar_machine_forget(grammar_machine *m, int32_t **keep, size_t n, err *e);

#endif
