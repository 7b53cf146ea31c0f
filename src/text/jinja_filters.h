/* jinja_filters.h: what the files with filters, tests and methods share. */
#ifndef TEXT_JINJA_FILTERS_H
#define TEXT_JINJA_FILTERS_H

#include "text/jinja_value.h"

extern const jfunc jinja_text_filters[], jinja_list_filters[], jinja_number_filters[];
extern const jfunc jinja_str_methods[], jinja_str_query_methods[], jinja_list_methods[], jinja_tuple_methods[], jinja_dict_methods[];
extern const jfunc jinja_loop_methods[], jinja_cycler_methods[], jinja_range_methods[];
jfunction jinja_filter_tojson;

/* Stable sort by key(context, item); equal items keep their order also when reversed. */
typedef jval jsort_key(jrun *r, const void *context, jval item);
void jinja_sort(jrun *r, jlist *l, jsort_key *key, const void *context, bool reverse);
void jinja_reverse(jlist *l);
jval jinja_key_first(jrun *r, const void *context, jval item);

/* Shared by methods and filters of the same meaning. */
jval jinja_strip(jrun *r, jval s, jval chars, int side);
jval jinja_capitalize(jrun *r, const jstr *s);
jval jinja_pad(jrun *r, jval s, int64_t width, jval fill, int align); /* align: '<', '>', '^' */
jval jinja_replace(jrun *r, const jstr *s, const jstr *from, const jstr *to, int64_t count);
jlist *jinja_splitlines(jrun *r, jval s, bool keep);
jval jinja_join(jrun *r, const jstr *separator, jval items, bool strict, bool escape);

#endif
