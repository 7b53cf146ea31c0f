/* shelf_inner.h: the index, for the files of the shelf. */
#ifndef STORE_SHELF_INNER_H
#define STORE_SHELF_INNER_H

#include <pthread.h>

#include "store/shelf.h"

/* A block in the index; bytes 0: an empty slot. */
typedef struct shelf_record {
    shelf_key key;
    uint32_t used; /* seconds since 1970 */
    uint64_t bytes;
} shelf_record;

typedef struct shelf_table {
    shelf_record *slots; /* by the start of the name, linear probing */
    size_t n_slots, n;
} shelf_table;

shelf_record *table_find(const shelf_table *t, const kv_name *name);
shelf_record *table_find_start(const shelf_table *t, uint64_t start); /* by the first 8 bytes of the name */
bool table_add(shelf_table *t, const shelf_record *r, err *e);        /* replaces one of the same name */
void table_remove(shelf_table *t, shelf_record *r);

struct shelf {
    char *folder;
    uint64_t budget_asked;
    pthread_mutex_t lock;
    shelf_table table;
    bool folder_made[256];
    uint32_t scanned; /* seconds since 1970 */
    shelf_stats stats;
};

uint32_t shelf_now(void);
char *shelf_join(const char *folder, const char *name, err *e);
/* True for what an interrupted write leaves. */
bool shelf_is_remains(const char *name);

#endif
