#!/bin/sh
# Runs every test program and adds up what they report. Ends with "N passed, N failed, N skipped".
set -u
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
export HEARTH_TEST_BUILD="$BUILD"
log=$(mktemp)
# Tests neither read nor leave packed weights, conversations, models or settings in the home folder.
home=$(mktemp -d)
export XDG_CACHE_HOME="$home/cache" XDG_DATA_HOME="$home/data" XDG_CONFIG_HOME="$home/config"
trap 'rm -rf "$log" "$home"' EXIT
passed=0 failed=0 skipped=0
for source in tests/unit/test_*.sh tests/unit/test_*.c tests/conformance/test_*.c; do
    [ -e "$source" ] || continue
    case $source in *.sh) program=$source ;; *) program=$BUILD/${source%.c} ;; esac
    CMOCKA_MESSAGE_OUTPUT=tap "$program" >"$log" 2>&1
    status=$?
    # cmocka writes a skipped test as "not ok N # SKIP".
    s=$(grep -cE '^(not )?ok .*# SKIP' "$log")
    p=$(grep -E '^ok ' "$log" | grep -vc '# SKIP')
    f=$(grep -E '^not ok ' "$log" | grep -vc '# SKIP')
    # A program that dies, or fails without saying which test, is a failure of its own.
    if [ "$status" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; echo "not ok - $source ended with status $status" >>"$log"; fi
    if [ $((p + f + s)) -eq 0 ]; then f=1; echo "not ok - $source ran no test" >>"$log"; fi
    printf '%-44s %4d passed' "${source#tests/}" $p
    [ "$f" -gt 0 ] && printf ', %d failed' "$f"
    [ "$s" -gt 0 ] && printf ', %d skipped' "$s"
    echo
    if [ "$f" -gt 0 ]; then grep -vE '^ok |# SKIP' "$log" | sed 's/^/    /' | head -n 60; fi
    grep '^skipped: ' "$log" | sed 's/^/    /'
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
