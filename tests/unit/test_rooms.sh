#!/bin/sh
# The order of rooms: a file includes only headers of its own room and of rooms above it. Also: the shared library
# exports hearth_* and nothing else. Prints TAP.
set -u
rooms="base quant gguf kernels text weights kv model store engine http api cli"
number=0
report() { # name, complaints
    number=$((number + 1))
    if [ -z "$2" ]; then echo "ok $number - $1"; else echo "not ok $number - $1"; echo "$2" | sed 's/^/# /'; fi
}

rank() {
    n=0
    for r in $rooms; do n=$((n + 1)); [ "$r" = "$1" ] && echo $n && return; done
    echo 0
}
bad=
for folder in src/*/; do
    room=$(basename "$folder")
    mine=$(rank "$room")
    [ "$mine" -gt 0 ] || bad="$bad$folder is not in the order of rooms
"
    for line in $(grep -hoE '^#include "[a-z]+/[a-z0-9_]+\.h"' "$folder"*.[ch] 2>/dev/null | sed 's/#include "//; s/"//' | sort -u); do
        other=$(rank "${line%%/*}")
        [ "$other" -gt 0 ] && [ "$other" -le "$mine" ] || bad="$bad$folder includes $line, which lies below it
"
    done
done
report "rooms include only rooms above them" "$bad"

library=${HEARTH_TEST_BUILD:-build}/libhearth.so
report "the shared library exports only hearth_ names" "$(nm -D --defined-only "$library" | awk '{print $3}' | grep -vE '^hearth_' | grep -vE '^(_init|_fini|__asan|__ubsan|__tsan|__odr_asan|___asan)')"

report "the static library exports only hearth_ names" "$(nm -g --defined-only "${library%.so}.a" 2>/dev/null | awk 'NF==3 {print $3}' | grep -vE '^hearth_' | grep -vE '^(__asan|__ubsan|__tsan|__odr_asan|___asan)')"

declared=$(grep -oE 'hearth_[a-z0-9_]+\(' include/hearth.h | tr -d '(' | sort -u)
missing=
for f in $declared; do nm -D --defined-only "$library" | grep -q " $f\$" || missing="$missing$f is declared but not in the library
"; done
report "everything that hearth.h declares is there" "$missing"
echo "1..$number"
