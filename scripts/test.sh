#!/usr/bin/env bash
# Builds and tests everything, on a machine that may have nothing installed yet. What CI runs.
#
#   scripts/test.sh                    all stages
#   scripts/test.sh --quick            release build and its tests, lint without clang-tidy
#   scripts/test.sh release debug      only these stages (packages and the model are fetched all the same)
#
# Stages, in order:
#   lint        format, layers, words, headers that compile alone
#   release     host-release: unit, scenario, engine and conformance tests
#   http        the HTTP suite against build/host-release/tandem, in a Python environment below build/
#   quickstart  scripts/quickstart.sh --check
#   threads     host-tsan: the tests labelled `threads` under the thread sanitizer
#   debug       host-debug: all tests, and malformed HTTP requests, under the address and undefined-behaviour sanitizers
#   cuda        cuda-release, where the machine has nvcc; its tests are skipped where there is no GPU
#   tidy        clang-tidy over src/
#
# Ends with a table of stage times and the line "N passed, N failed, N skipped" over all tests that ran.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

all_stages=(lint release http quickstart threads debug cuda tidy)
quick_stages=(lint release http)
stages=()
for argument in "$@"; do
  case "$argument" in
    -h | --help) sed -n '2,18s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    --quick) stages+=("${quick_stages[@]}") ;;
    *)
      if [[ ! " ${all_stages[*]} " == *" $argument "* ]]; then
        echo "test.sh: unknown stage '$argument'; there are: ${all_stages[*]}" >&2
        exit 2
      fi
      stages+=("$argument")
      ;;
  esac
done
[[ ${#stages[@]} == 0 ]] && stages=("${all_stages[@]}")

results=build/test-results
rm -rf "$results"
mkdir -p "$results"
# Another checkout at another path can share compilations. Nothing depends on ccache being there.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
# No fake stack: GCC 12 misplaces frames with 64-byte vectors on it, and the access then faults.
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=0}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}"

build() {  # preset, targets...
  local preset="$1"
  shift
  cmake --preset "$preset" >"$results/configure-$preset.log" 2>&1 || { cat "$results/configure-$preset.log"; return 1; }
  cmake --build --preset "$preset" ${1:+--target "$@"} -- --quiet
}

run_ctest() {  # preset, jobs, further arguments of ctest...
  local folder jobs="$2"
  folder="$PWD/$results/$1"
  mkdir -p "$folder"
  local preset="$1"
  shift 2
  GTEST_OUTPUT="json:$folder/" GTEST_COLOR=no ctest --test-dir "build/$preset" --output-on-failure --no-tests=error \
    --output-junit "$folder/ctest.xml" -j "$jobs" "$@"
}

stage_lint() { scripts/lint.sh format layers words headers docs; }

stage_release() { build host-release && run_ctest host-release 1; }

run_http() {  # preset, further arguments of pytest...
  local preset="$1" environment=build/test-venv wanted
  local requirements=(tests/http/requirements.txt tests/http/page_requirements.txt)
  shift
  wanted="$(sha256sum "${requirements[@]}")" || return 1
  if [[ "$(cat "$environment/installed" 2>/dev/null)" != "$wanted" ]]; then
    rm -rf "$environment"
    python3 -m venv "$environment" &&
      "$environment/bin/pip" install -q --disable-pip-version-check "${requirements[@]/#/-r}" &&
      echo "$wanted" >"$environment/installed" || return 1
  fi
  mkdir -p "$results/http-$preset"
  TANDEM_BINARY="$PWD/build/$preset/tandem" PYTHONDONTWRITEBYTECODE=1 \
    "$environment/bin/python" -m pytest -q -p no:cacheprovider --junitxml="$results/http-$preset/pytest.xml" "$@"
}

stage_http() { build host-release tandem && run_http host-release tests/http; }

stage_quickstart() { scripts/quickstart.sh --check; }

stage_threads() {
  build host-tsan help >/dev/null || return 1
  local targets
  mapfile -t targets < <(ctest --test-dir build/host-tsan -N -L threads | sed -n 's/^ *Test *#[0-9]*: *//p')
  [[ ${#targets[@]} -gt 0 ]] || { echo "no test has the label 'threads'"; return 1; }
  build host-tsan "${targets[@]}" && run_ctest host-tsan 1 -L threads
}

stage_debug() {
  local ok=0
  build host-debug || return 1
  run_ctest host-debug 1 || ok=1
  # Input that no client should send, against the sanitizers.
  run_http host-debug tests/http/test_malformed_requests.py || ok=1
  return $ok
}

stage_cuda() {
  if ! command -v nvcc >/dev/null; then
    echo "no nvcc on this machine"
    return
  fi
  # Without a GPU the tests that need one report that they were skipped.
  scripts/fetch_flashinfer.sh >/dev/null && build cuda-release tandem ops_cuda_test device_cuda_test conformance_cuda_test &&
    run_ctest cuda-release 1 -L cuda
}

stage_tidy() {
  cmake --preset host-release >/dev/null && scripts/lint.sh tidy || return 1
  # The host code of the cuda backend, where the stage before has configured it.
  [[ -f build/cuda-release/compile_commands.json ]] || return 0
  local sources
  mapfile -t sources < <(find src/device/cuda src/ops/cuda -name '*.cc' ! -name '*_test.cc' | sort)
  TANDEM_BUILD_DIR=build/cuda-release scripts/lint.sh tidy "${sources[@]}"
}

# What the stages need. Without it there is nothing to go on with.
begin=$SECONDS
if ! scripts/install_deps.sh --tests || ! TANDEM_TEST_MODEL="$(scripts/fetch_model.sh | tail -n 1)"; then
  echo "test.sh: could not install packages or fetch the model" >&2
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
export TANDEM_TEST_MODEL
table="$(printf '%-12s %-6s %6d s' setup ok $((SECONDS - begin)))"

failed_stages=()
for stage in "${stages[@]}"; do
  echo "=== $stage"
  begin=$SECONDS
  if "stage_$stage"; then
    outcome=ok
  else
    outcome=FAILED
    failed_stages+=("$stage")
  fi
  table+=$'\n'"$(printf '%-12s %-6s %6d s' "$stage" "$outcome" $((SECONDS - begin)))"
done

echo
printf '%s\n%-12s %-6s %6d s\n\n' "$table" total "" "$SECONDS"
# Fails if a test failed, and counts a failed stage that no test accounts for as one failure.
python3 scripts/count_tests.py "$results" "${failed_stages[@]}"
