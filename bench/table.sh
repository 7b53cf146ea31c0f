#!/bin/sh
# Takes the figures of docs/performance.md: every row is one run of `hearth bench`, in turns with the peer where there is one.
# A row whose model or peer is not there is left out, in words; a row that fails makes the status 1.
set -u
usage() {
    cat <<'END'
usage: bench/table.sh --models DIR [options]

  --models DIR        where the models are: granite-3.3-2b-Q4_K_M.gguf, llama-3.2-1b-{Q8_0,Q4_0,F16,Q6_K,BF16}.gguf,
                      deepseek-v2-lite-Q4_K_M.gguf
  --make COMMAND      what makes a missing one, called with PRESET MIX FILE (granite-3.3-2b Q4_K_M FILE)
  --peer PATH         llama-bench, with llama-batched-bench beside it
  --peer-plain PATH   the same for models that the first cannot run (default: the first)
  --peer-avx2 PATH    the same built for AVX2, against `--cpu avx2`
  --out DIR           where a JSON file and a drawing of each row go (default: build/bench)
  --threads N         default 2
  --repetitions N     default 5; rows at depth 8192 take 2
  --rows "NAME ..."   only these: granite types deep experts batch avx2 start spread
END
}
cd "$(dirname "$0")/.." || exit 1
hearth=build/hearth models='' make='' peer='' plain='' avx2='' out=build/bench threads=2 repetitions=5
rows='granite types deep experts batch avx2 start spread'
while [ $# -gt 0 ]; do
    case $1 in
    --help) usage; exit 0 ;;
    --models | --make | --peer | --peer-plain | --peer-avx2 | --out | --threads | --repetitions | --rows)
        [ $# -gt 1 ] || { echo "table.sh: $1 needs a value" >&2; exit 2; }
        case $1 in
        --models) models=$2 ;; --make) make=$2 ;; --peer) peer=$2 ;; --peer-plain) plain=$2 ;; --peer-avx2) avx2=$2 ;;
        --out) out=$2 ;; --threads) threads=$2 ;; --repetitions) repetitions=$2 ;; --rows) rows=$2 ;;
        esac
        shift 2 ;;
    *) echo "table.sh: unknown option '$1'" >&2; usage >&2; exit 2 ;;
    esac
done
[ -n "$models" ] || { usage >&2; exit 2; }
[ -n "$plain" ] || plain=$peer
[ -x "$hearth" ] || { echo "table.sh: run make first" >&2; exit 1; }
mkdir -p "$out" || exit 1
failed=0

# model PRESET MIX: sets $file, makes it when it can be made.
model() {
    file=$models/$1-$2.gguf
    [ -e "$file" ] && return 0
    [ -n "$make" ] || { echo "left out: $file is not there"; return 1; }
    $make "$1" "$2" "$file.part" && mv "$file.part" "$file"
}

# row NAME PEER options...: one run on $file; the table on the terminal, JSON and drawing in $out.
row() {
    name=$1 against=$2
    shift 2
    echo
    echo "== $name"
    set -- "$file" --threads "$threads" "$@"
    [ -n "$against" ] && set -- "$@" --peer "$against"
    "$hearth" bench "$@" --report "$out/$name.json" --plot "$out/$name.svg" || failed=1
}

for r in $rows; do
    case $r in
    granite) model granite-3.3-2b Q4_K_M && row granite-3.3-2b-Q4_K_M "$peer" -p 512 -n 64 -r "$repetitions" ;;
    types) for t in Q8_0 Q4_0 F16 Q6_K BF16; do model llama-3.2-1b $t && row llama-3.2-1b-$t "$peer" -p 512 -n 64 -r "$repetitions"; done ;;
    deep) model granite-3.3-2b Q4_K_M && row granite-3.3-2b-Q4_K_M-deep "$peer" -p 512 -n 64 -d 8192 -r 2 ;;
    experts) model deepseek-v2-lite Q4_K_M && row deepseek-v2-lite-Q4_K_M "$plain" -p 512 -n 64 -r "$repetitions" ;;
    batch) model granite-3.3-2b Q4_K_M && row granite-3.3-2b-Q4_K_M-batch "$peer" -p 0 -n 64 -b 8 -r "$repetitions" ;;
    avx2)
        if [ -n "$avx2" ]; then model granite-3.3-2b Q4_K_M && row granite-3.3-2b-Q4_K_M-avx2 "$avx2" --cpu avx2 -p 512 -n 64 -r "$repetitions"
        else echo "left out: avx2 needs --peer-avx2"; fi ;;
    start) model granite-3.3-2b Q4_K_M && row granite-3.3-2b-Q4_K_M-start '' --start -p 0 -n 16 -r "$repetitions" ;;
    spread) model granite-3.3-2b Q4_K_M && row granite-3.3-2b-Q4_K_M-spread '' -p 0 -n 64 -r 20 --warmup 0 ;;
    *) echo "table.sh: no row '$r'" >&2; exit 2 ;;
    esac
done
exit $failed
