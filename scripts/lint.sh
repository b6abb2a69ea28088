#!/usr/bin/env bash
# Everything that is checked without running the program. All checks, or those named:
#
#   scripts/lint.sh                   format, layers, words, headers, docs, scripts, tidy
#   scripts/lint.sh format layers     only these
#   scripts/lint.sh --fix             formats the sources instead of checking them
#   scripts/lint.sh tidy PATH...      clang-tidy on these files and folders
#   scripts/lint.sh analyze [FILE...] the same with clang's static analyzer, which takes longer still
#
# tidy needs a configured build (host-release unless TANDEM_BUILD_DIR names another) and remembers what passed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

sources() {
  git ls-files -z --cached --others --exclude-standard -- 'src/*.h' 'src/*.cc' 'src/*.cu' 'src/*.cuh' \
    'tests/*.h' 'tests/*.cc' 'bench/*.h' 'bench/*.cc' |
    while IFS= read -r -d '' file; do [[ -f $file ]] && printf '%s\0' "$file"; done
}

check_format() { sources | xargs -0 -r -n 16 -P "$(nproc)" clang-format --dry-run -Werror; }
check_layers() { python3 scripts/check_layers.py && python3 scripts/check_layers_test.py 2>&1 | tail -n 3; }
check_words() { python3 scripts/check_words.py; }
check_headers() { python3 scripts/check_headers.py; }
check_docs() {
  python3 scripts/check_docs.py && python3 scripts/check_docs_test.py 2>&1 | tail -n 3 &&
    python3 scripts/check_papers.py && python3 scripts/check_papers_test.py 2>&1 | tail -n 3
}
check_scripts() {
  local script
  for script in stage_budgets cuda_architectures choose_cuda unpack_wheel; do
    python3 -B "scripts/${script}_test.py" 2>&1 | tail -n 3 || return 1
  done
}
check_tidy() {
  local build_dir="${TANDEM_BUILD_DIR:-build/host-release}"
  if [[ ! -f $build_dir/compile_commands.json ]]; then
    cmake --preset host-release >/dev/null || return 1
  fi
  local options=()
  [[ ${1:-} != --analyze ]] || { options=(--analyze); shift; }
  python3 scripts/run_clang_tidy.py "${options[@]}" "$build_dir" "$@"
}

case "${1:-}" in
  -h | --help) sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  --fix) sources | xargs -0 -r clang-format -i; exit ;;
  tidy) shift; check_tidy "$@"; exit ;;
  analyze) shift; check_tidy --analyze "$@"; exit ;;
esac

checks=("$@")
[[ ${#checks[@]} == 0 ]] && checks=(format layers words headers docs scripts tidy)
failed=()
for check in "${checks[@]}"; do
  case "$check" in
    format | layers | words | headers | docs | scripts | tidy) ;;
    *) echo "lint.sh: unknown check '$check'" >&2; exit 2 ;;
  esac
  begin=$SECONDS
  if "check_$check"; then result=ok; else result=FAILED; failed+=("$check"); fi
  printf 'lint %-8s %-6s %4d s\n' "$check" "$result" $((SECONDS - begin))
done
[[ ${#failed[@]} == 0 ]]
