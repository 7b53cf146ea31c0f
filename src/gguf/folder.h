/* folder.h: finds models by name in a folder and the folders in it. A split model counts once, by its first part. */
#ifndef GGUF_FOLDER_H
#define GGUF_FOLDER_H

#include "base/file.h"

typedef struct gguf_found {
    char *path;
    char *name;     /* the file's, without .gguf and the number of the part */
    char *relative; /* the same below the folder that was searched: OWNER/REPO/NAME */
    uint64_t bytes; /* of all parts */
} gguf_found;

typedef struct gguf_folder {
    gguf_found *items; /* in the order of their relative names */
    size_t n, cap;
} gguf_folder;

/* Looks through folder and what is in it, a few levels deep. A folder that is not there is empty. */
bool gguf_folder_scan(gguf_folder *out, const char *folder, err *e);
void gguf_folder_free(gguf_folder *f);
/* The one of this name: its relative name, or its short name when only one has it. NULL otherwise; *several tells of the second case. */
const gguf_found *gguf_folder_find(const gguf_folder *f, const char *name, bool *several);

/* The name that a model file gives its model: without folders, .gguf and the number of the part. At most cap - 1 bytes. Returns out. */
char *gguf_model_name(const char *path, char *out, size_t cap);
/* Whether path names a part of a split file; then number and count are set. */
bool gguf_is_part(const char *path, int *number, int *count);
/* Bytes of the file and, for the first part of a split one, of the other parts that are there. 0 when there is none. */
uint64_t gguf_model_bytes(const char *path);

#endif
