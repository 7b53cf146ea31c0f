/* bundle.h: an agent in one file, to be moved to another machine: its file and those of its blocks, as the tensors of a file that is checksummed as they are. What
 * it holds was computed by the model whose fingerprint it carries, and is of use to that model only.
 *
 * On the way in everything is checked: every byte against the checksums, every block against the tokens of the agent and the name that follows from them. Whether
 * keys and values are those that the model would compute cannot be told without computing them: a bundle is to be taken from who is trusted. What is in the store
 * already is never replaced. */
#ifndef STORE_BUNDLE_H
#define STORE_BUNDLE_H

#include "store/agent.h"

typedef struct bundle_info {
    char name[65], model[65];
    size_t tokens, blocks, missing; /* missing: blocks that are not there and will be computed again */
    size_t windows;                 /* window parts */
    uint64_t bytes;                 /* of the bundle */
} bundle_info;

/* tenant: whose agent it is, NULL for nobody's; it must be the same on both sides, since names of blocks are made with it. */
bool bundle_export(shelf *s, const char *agent, const char *tenant, const char *path, bundle_info *out, err *e);
/* name: NULL for the one that it had. HEARTH_ARGUMENT when there is an agent of that name. Blocks for which there is no room are missing. */
bool bundle_import(shelf *s, const char *path, const char *name, const char *tenant, bundle_info *out, err *e);

#endif
