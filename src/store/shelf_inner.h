/* shelf_inner.h: the index, for the files of the shelf. */
#ifndef STORE_SHELF_INNER_H
#define STORE_SHELF_INNER_H

#include <pthread.h>

#include "store/shelf.h"

/* A block or window part in the index; bytes 0: an empty slot. */
typedef struct shelf_record {
    shelf_key key;
    uint32_t used;  /* seconds since 1970 */
    uint32_t reach; /* 0: a block */
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
uint64_t name_start(const kv_name *name); /* the first 8 bytes */

struct shelf {
    char *folder;
    uint64_t budget_asked;
    pthread_mutex_t lock;
    shelf_table table, windows;
    uint64_t since_sweep;  /* window parts written since they were last looked through */
    uint64_t id;           /* of this one among those that share the folder */
    bool others;           /* who has written since the last scan */
    bool folder_made[256];
    pthread_mutex_t room;  /* of the threads of this process: who may change what is in the folder; before lock */
    int room_fd;           /* the lock on the folder, while one may; -1: not held */
    shelf_stats stats;     /* bytes: as counted when the folder's lock was held last */
};

/* Puts a file into the index, or takes it out, and counts how many there are. Under the lock. */
bool index_add(shelf *s, const shelf_record *r, err *e);
void index_remove(shelf *s, const kv_name *name, bool window);
/* The block that this one builds on, or NULL. Under the lock. */
const shelf_record *index_above(const shelf *s, const shelf_record *r);

/* Takes the folder's lock, among threads and processes, and learns how many bytes are in it. False without an error when others hold it for seconds. */
bool room_enter(shelf *s, err *e);
/* Gives it back; what is in stats.bytes by then is the count. */
void room_leave(shelf *s);
/* shelf_collect by who has the lock. spare: what is about to be written, or NULL. */
bool room_collect(shelf *s, uint64_t most, const shelf_file *spare, err *e);
/* shelf_sweep by who has the lock. */
bool room_sweep(shelf *s, uint32_t grace, err *e);
/* Deletes a file of blocks/ and counts it. */
bool room_delete(shelf *s, const shelf_record *r, err *e);

uint32_t shelf_now(void);
char *shelf_join(const char *folder, const char *name, err *e);
/* True for what an interrupted write leaves. */
bool shelf_is_remains(const char *name);

#endif
