#!/usr/bin/env bash
# Fuzzes what reads bytes of others: model files, chat templates, texts, answers, request bodies, HTTP connections. Each fuzzer begins
# with what the test fixtures hold and with what is in tests/fuzz/found/NAME (inputs that once broke something).
# Fails at the first defect and leaves its input under build/fuzz/NAME.
#
#   scripts/fuzz.sh                      60 seconds each
#   scripts/fuzz.sh --seconds 600 NAME   one of them; names: those of tests/fuzz/fuzz_*.cc
#   scripts/fuzz.sh --build              builds them and runs nothing
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=60
build_only=0
names=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    --seconds) seconds="${2:?--seconds needs a number}"; shift 2 ;;
    --build) build_only=1; shift ;;
    *)
      [[ -f tests/fuzz/fuzz_$1.cc ]] || { echo "fuzz.sh: there is no fuzzer '$1'" >&2; exit 2; }
      names+=("$1"); shift ;;
  esac
done
if [[ ${#names[@]} == 0 ]]; then
  for source in tests/fuzz/fuzz_*.cc; do name="${source##*/fuzz_}"; names+=("${name%.cc}"); done
fi

mkdir -p build/fuzz
cmake --preset host-fuzz >build/fuzz/configure.log 2>&1 || { cat build/fuzz/configure.log >&2; exit 1; }
cmake --build --preset host-fuzz --target "${names[@]/#/fuzz_}" -- --quiet
[[ $build_only == 0 ]] || exit 0

fixtures=tests/fixtures
# The first byte of some inputs says what the rest is.
seed() {  # folder, first byte in octal or "", files...
  local folder="$1" first="$2" file
  shift 2
  for file in "$@"; do { [[ -z $first ]] || printf "\\$first"; cat "$file"; } >"$folder/$(basename "$file").$first"; done
}
make_seeds() {  # name, folder
  case "$1" in
    model_file)
      seed "$2" 000 "$fixtures"/text/*.gguf
      seed "$2" 001 "$fixtures"/families/*/config.json
      seed "$2" 003 "$fixtures"/text/*.tokenizer.json
      seed "$2" 004 "$fixtures"/text/*.tokenizer.model ;;
    chat_template) seed "$2" "" "$fixtures"/chat_templates/*.jinja ;;
    tokenizer_text)
      split -b 400 -d -a 4 <(head -c 60000 "$fixtures/text/corpus.txt") "$2/corpus." ;;
    generation_request | http_connection | answer_text) python3 tests/fuzz/make_seeds.py "$1" "$2" ;;
  esac
  [[ ! -d tests/fuzz/found/$1 ]] || cp tests/fuzz/found/"$1"/* "$2/"
}

export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:detect_stack_use_after_return=0:allocator_may_return_null=1}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
outcome=0
for name in "${names[@]}"; do
  folder="build/fuzz/$name"
  mkdir -p "$folder/seeds" "$folder/corpus"
  make_seeds "$name" "$folder/seeds"
  # What it found before is in the corpus: each run goes on where the last one ended.
  if build/host-fuzz/tests/fuzz/fuzz_"$name" -max_total_time="$seconds" -timeout=25 -rss_limit_mb=4096 -max_len=200000 \
    -dict=tests/fuzz/"$name".dict -print_final_stats=1 -artifact_prefix="$folder/" "$folder/corpus" "$folder/seeds" \
    >"$folder/log" 2>&1; then
    printf 'fuzz %-20s ok      %s inputs in %d s\n' "$name" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$folder/log")" "$seconds"
  else
    printf 'fuzz %-20s FAILED  see %s\n' "$name" "$folder/log"
    tail -n 40 "$folder/log"
    outcome=1
  fi
done
exit $outcome
