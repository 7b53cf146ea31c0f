#!/bin/sh
# Runs each fuzz target for FUZZ_SECONDS, beginning with its seeds and what earlier runs found. What is found stays in build/fuzz/findings.
set -u
cd "$(dirname "$0")/../.."
failed=0
mkdir -p build/fuzz/findings
for program; do
    name=${program##*/fuzz_}
    mkdir -p build/fuzz/corpus/$name
    seeds=
    [ -d tests/fuzz/seeds/$name ] && seeds=tests/fuzz/seeds/$name
    if $program -max_total_time=${FUZZ_SECONDS:-60} -timeout=60 -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix=build/fuzz/findings/$name- \
        build/fuzz/corpus/$name $seeds >build/fuzz/$name.log 2>&1; then
        echo "fuzz $name: no finding ($(sed -n 's/^stat::number_of_executed_units: *//p' build/fuzz/$name.log) runs)"
    else
        echo "fuzz $name: a finding, see build/fuzz/$name.log"
        failed=1
    fi
done
exit $failed
