/* folder.h: the cache folder of packed weights. Three kinds of files, all written whole or not at all:
 *
 *   TABLE-FINGERPRINT-VARIANT-LAYOUT.weights        the packed forms of one model for one kernel set
 *   the same + .used                                its last use (the file's time) and the state in which it was last checked in full
 *   IDENTITY.source                                 the fingerprint of a model file in a certain state, so that it need not be read again
 *
 * and, for people, NAME.bad: a packed file that did not check out. */
#ifndef WEIGHTS_FOLDER_H
#define WEIGHTS_FOLDER_H

#include "gguf/gguf.h"
#include "weights/packfile.h"

/* The folder to use: given, or the default. NULL with e set when there is no home. Freed with mem_free. */
char *folder_path(const char *given, err *e);

/* The packed file's path; freed with mem_free. */
char *folder_pack_path(const char *folder, const pack_key *key, err *e);
/* Whether there is a packed file that agrees with the key in all but the fingerprint. */
bool folder_has_candidate(const char *folder, const pack_key *key);

/* The record of a model file's fingerprint. A state younger than a second may be followed by another that looks the same, so it is not recorded. */
bool folder_source_find(const char *folder, const gguf *g, hash128 table, hash128 *fingerprint);
bool folder_source_record(const char *folder, const gguf *g, hash128 table, hash128 fingerprint, int64_t hashed_from_ns, err *e);

/* The record that a packed file in a certain state was checked in full since the machine was started. */
bool folder_checked_find(const char *pack_path, const file_id *id);
bool folder_checked_record(const char *pack_path, const file_id *id, err *e);
void folder_used(const char *pack_path); /* notes the time */

/* Renames a damaged file out of the way, if path still names the one with this id. Replaces an older one that was set aside. */
bool folder_set_aside(const char *pack_path, const file_id *id, err *e);

typedef struct folder_file {
    char *name;
    uint64_t bytes;
    int64_t used_ns; /* since 1970 */
    bool bad;
} folder_file;
typedef struct folder_files {
    folder_file *items; /* least recently used first, set aside ones before */
    size_t n, cap;
    uint64_t bytes;
} folder_files;
/* The packed files. A folder that does not exist has none. */
bool folder_files_list(folder_files *f, const char *folder, err *e);
void folder_files_free(folder_files *f);

/* Deletes packed files, least recently used first, until at most `most` bytes are left, and records and temporary files that belong to nothing.
 * spare (may be NULL) names one to leave. The caller holds the folder's lock. */
bool folder_prune(const char *folder, uint64_t most, const char *spare, uint64_t *freed, err *e);
bool folder_remove(const char *folder, const char *name, err *e);

int64_t folder_now_ns(void); /* since 1970 */

#endif
