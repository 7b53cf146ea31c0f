/* verify.h: reads every file of a store and compares it with its checksum. */
#ifndef STORE_VERIFY_H
#define STORE_VERIFY_H

#include "store/shelf.h"

/* Of one file: why->code is HEARTH_OK when it is whole. What is damaged was set aside already, and is computed again when it is needed; what could not be read was
 * left alone. Return false to stop. */
typedef bool verify_each(void *user, const char *path, uint64_t bytes, const err *why, bool set_aside);

/* Files that come or go meanwhile, also by other processes, do no harm. */
bool shelf_verify(shelf *s, verify_each *each, void *user, err *e);

#endif
