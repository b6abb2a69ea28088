#!/usr/bin/env bash
# Builds and tests everything, on a machine that may have nothing installed yet. What CI runs.
#
#   scripts/test.sh                    all stages but the nightly ones
#   scripts/test.sh --quick            release build and its tests, lint without clang-tidy
#   scripts/test.sh release debug      only these stages (packages and the model are fetched all the same)
#   scripts/test.sh nightly            the stages that take longer: soak, more-cases, all-checks, threads, tidy, fuzz,
#                                      clients, grammars, package, deploy, hosts, cuda-all, arm-qemu
#
#   lint        format, layers, words, headers that compile alone, docs
#   quickstart  scripts/quickstart.sh --check, which compiles tandem
#   http        the HTTP suite against build/host-release/tandem, in a Python environment below build/
#   release     host-release: unit, scenario, engine and conformance tests
#   debug       host-debug: the tests labelled `threads` (whole engines, both tiers, kernels) under the address and
#               undefined-behaviour sanitizers, in one shard
#   arm         the files with NEON kernels, with the cross compiler for 64-bit Arm
#   cuda        cuda-release for one architecture, where the machine has nvcc, without what CUTLASS makes for 9.0a;
#               tests are skipped where there is no GPU
#   soak        20 minutes of cancels, disconnects and malformed requests: all blocks back, memory flat
#   more-cases  tests that draw their cases, with further seeds that differ each time, and 1,000 held-out requests in every case;
#               the perplexity of 20,000 tokens
#   all-checks  host-debug with every check of the undefined-behaviour sanitizer: all tests, and malformed HTTP requests
#   threads     host-tsan: the tests labelled `threads` under the thread sanitizer
#   tidy        clang-tidy over src/, its tests among it
#   fuzz        scripts/fuzz.sh: what reads bytes of others, 5 minutes each
#   clients     programs and libraries that people use (tests/clients), each in an environment of its own
#   grammars    the JSON-Schema-Test-Suite, and 100,000 answers of random weights that follow its schemas
#   package     scripts/package.sh and scripts/check_package.sh: a .deb on a bare Debian
#   deploy      scripts/check_manifests.py and scripts/check_container.sh: what deploy/ has for Kubernetes, and its container
#   hosts       scripts/check_two_hosts.sh: shards on two hosts, which are namespaces of this machine; skipped where none may be made
#   cuda-all    every GPU architecture, with what CUTLASS makes for 9.0a, and FA3
#   arm-qemu    host-aarch64, cross-compiled: unit, engine and conformance tests under qemu-user
#
# A stage has a part that compiles and a part that tests. The first run one after the other, the second beside them.
# Ends with a table of seconds and of CPU seconds beside their budgets (scripts/stage_budgets.txt; more than 1.3 times
# fails) and the line "N passed, N failed, N skipped" over all tests that ran.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

all_stages=(lint quickstart http release debug arm cuda)
quick_stages=(lint release http)
nightly_stages=(soak more-cases all-checks threads tidy fuzz clients grammars package deploy hosts cuda-all arm-qemu)
stages=()
for argument in "$@"; do
  case "$argument" in
    -h | --help) sed -n '2,36s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    --quick) stages+=("${quick_stages[@]}") ;;
    nightly) stages+=("${nightly_stages[@]}") ;;
    *)
      if [[ ! " ${all_stages[*]} ${nightly_stages[*]} " == *" $argument "* ]]; then
        echo "test.sh: unknown stage '$argument'; there are: ${all_stages[*]} nightly ${nightly_stages[*]}" >&2
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

build_tests() {  # preset, arguments of ctest that choose some...
  build "$1" help >/dev/null || return 1
  local targets
  mapfile -t targets < <(ctest --test-dir "build/$1" -N "${@:2}" | sed -n 's/^ *Test *#[0-9]*: *//p')
  [[ ${#targets[@]} -gt 0 ]] || { echo "there is no test with ${*:2}"; return 1; }
  build "$1" "${targets[@]}"
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

# Each stage: compile_STAGE, test_STAGE, or both.

test_lint() { scripts/lint.sh format layers words headers docs scripts; }

compile_quickstart() { scripts/quickstart.sh --cpu --build --check; }

compile_release() { build host-release; }
# Three processes do what two do.
test_release() { run_ctest host-release 1 -E '^processes_in_2_test$'; }

# The Python of tests that need packages, installed once.
test_environment=build/test-venv
install_test_environment() {
  local wanted requirements=(tests/http/requirements.txt tests/http/page_requirements.txt tests/grammar/requirements.txt)
  wanted="$(sha256sum "${requirements[@]}")" || return 1
  [[ "$(cat "$test_environment/installed" 2>/dev/null)" != "$wanted" ]] || return 0
  rm -rf "$test_environment"
  python3 -m venv "$test_environment" &&
    "$test_environment/bin/pip" install -q --disable-pip-version-check "${requirements[@]/#/-r}" &&
    echo "$wanted" >"$test_environment/installed"
}

# Runs tests of the program over HTTP.
run_http() {  # preset, further arguments of pytest...
  local preset="$1"
  shift
  install_test_environment || return 1
  # A report for each suite: a run may have several.
  local report="$results/http-$preset-$(basename "${@: -1}")"
  mkdir -p "$report"
  TANDEM_BINARY="$PWD/build/$preset/tandem" PYTHONDONTWRITEBYTECODE=1 \
    "$test_environment/bin/python" -m pytest -q -p no:cacheprovider --junitxml="$report/pytest.xml" "$@"
}

compile_http() { build host-release tandem; }
test_http() { run_http host-release tests/http; }

compile_debug() { build_tests host-debug -L threads; }
# One shard does what several do, except for their sums, which collective_test tries.
test_debug() { GTEST_FILTER='-Shards/*' run_ctest host-debug 1 -L threads; }

has_nvcc() { command -v nvcc >/dev/null || { echo "no nvcc on this machine"; return 1; }; }
cuda_targets=(tandem ops_cuda_test device_cuda_test collective_cuda_test conformance_cuda_test)
compile_cuda() {
  has_nvcc || return 0
  scripts/fetch_flashinfer.sh >/dev/null || return 1
  # One architecture is enough to see that it compiles; who has a GPU keeps what is configured.
  [[ -f build/cuda-release/CMakeCache.txt ]] ||
    cmake --preset cuda-release -DTANDEM_CUDA_ARCHITECTURES=90a-real -DTANDEM_FLASH_ATTENTION3=OFF \
      -DTANDEM_FUSED_GATE_UP=OFF -DTANDEM_STREAMED_PRODUCTS=OFF >/dev/null || return 1
  local targets=("${cuda_targets[@]}")
  grep -q '^TANDEM_MPI:BOOL=ON' build/cuda-release/CMakeCache.txt && targets+=(processes_test)
  build cuda-release "${targets[@]}"
}
test_cuda() {
  has_nvcc || return 0
  # Without a GPU the tests that need one report that they were skipped.
  run_ctest cuda-release 1 -L cuda
}

compile_arm() { scripts/cross_aarch64.sh --kernels; }

compile_soak() { build host-release tandem; }
test_soak() { TANDEM_NIGHTLY=1 run_http host-release -rP tests/http/soak; }

compile_more-cases() {
  build host-release jinja_test kv_test simulate_test engine_test grammar_test conformance_test processes_test
}
test_more-cases() {
  TANDEM_NIGHTLY=1 run_ctest host-release 1 -R '^(jinja|kv|simulate|engine|grammar|conformance|processes_in_2)_test$'
}

all_checks=build/host-debug-all-checks
compile_all-checks() {
  cmake --preset host-debug -B "$all_checks" -DTANDEM_SKIPPED_CHECKS= >/dev/null || return 1
  cmake --build "$all_checks" -- --quiet
}
test_all-checks() {
  local ok=0
  run_ctest host-debug-all-checks 1 || ok=1
  # Input that no client should send, against the sanitizers.
  run_http host-debug-all-checks tests/http/test_malformed_requests.py || ok=1
  return $ok
}

compile_threads() { build_tests host-tsan -L threads; }
test_threads() { run_ctest host-tsan 1 -L threads; }

compile_tidy() {
  cmake --preset host-release >/dev/null && scripts/lint.sh tidy || return 1
  # The host code of the cuda backend, where it has been configured.
  [[ -f build/cuda-release/compile_commands.json ]] || return 0
  TANDEM_BUILD_DIR=build/cuda-release scripts/lint.sh tidy src/device/cuda src/collective/cuda src/ops/cuda
}

compile_fuzz() { scripts/fuzz.sh --build; }
test_fuzz() { scripts/fuzz.sh --seconds 300; }

compile_clients() { build host-release tandem; }
test_clients() { run_http host-release tests/clients; }

compile_grammars() { build host-release grammar_suite; }
test_grammars() {
  local folder="$results/grammars"
  mkdir -p "$folder"
  install_test_environment &&
    "$test_environment/bin/python" tests/grammar/run_grammar_suite.py --answers 100000 --newer --tokenizer "$TANDEM_TEST_MODEL" \
      --draws 20 --summary "$folder/summary.json"
}

compile_package() { scripts/package.sh; }
test_package() { scripts/check_package.sh --no-build; }

compile_deploy() { build host-release; }
test_deploy() {
  local environment=build/manifests-venv
  python3 -m venv "$environment" && "$environment/bin/pip" install -q --disable-pip-version-check kubernetes-validate==1.37.0 &&
    "$environment/bin/python" scripts/check_manifests.py build/host-release/tandem && scripts/check_container.sh
}

compile_hosts() { build host-release tandem; }
test_hosts() {
  local code=0
  scripts/check_two_hosts.sh || code=$?
  # It has said why it could not be tried here.
  [[ $code == 0 || $code == 77 ]]
}

compile_cuda-all() {
  has_nvcc || return 0
  scripts/fetch_flashinfer.sh >/dev/null || return 1
  cmake --preset cuda-release -B build/cuda-all -DTANDEM_CUDA_ARCHITECTURES=all >/dev/null || return 1
  cmake --build build/cuda-all --target "${cuda_targets[@]}" -- --quiet
}

compile_arm-qemu() { scripts/cross_aarch64.sh; }
test_arm-qemu() {
  local ok=0 cpu
  # Tests that expect a program to end start it again, which only binfmt_misc could run under qemu.
  GTEST_FILTER='-*DeathTest*' run_ctest host-aarch64 2 -LE scripts || ok=1
  # Processors without bf16, and without dot products: what is chosen there.
  for cpu in neoverse-n1 cortex-a72; do
    scripts/cross_aarch64.sh --run "$cpu" build/host-aarch64/tandem --version &&
      scripts/cross_aarch64.sh --run "$cpu" build/host-aarch64/src/cpu_attention/decode_accuracy_test \
        --gtest_filter='*Random*/NEON*' --gtest_brief=1 &&
      scripts/cross_aarch64.sh --run "$cpu" build/host-aarch64/src/ops/ops_test --gtest_brief=1 \
        --gtest_filter='*QuantizedLinearTest.FewBf16Rows*/NEON*:ElementwiseTest*/NEON*' || ok=1
  done
  return $ok
}

# What the stages need. Without it there is nothing to go on with.
begin=$SECONDS
if ! scripts/install_deps.sh --tests || ! TANDEM_TEST_MODEL="$(scripts/fetch_model.sh | tail -n 1)"; then
  echo "test.sh: could not install packages or fetch the model" >&2
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
export TANDEM_TEST_MODEL
setup_s=$((SECONDS - begin))

parts="$results/parts"
mkdir -p "$parts"
python3 scripts/stage_budgets.py yardstick >"$parts/yardstick" || exit 1

# Runs a part of a stage (compile or test) and prints its output when it has ended.
run_part() {  # part, stage
  local part="$1" stage="$2" log begin=$SECONDS outcome=ok cpu
  declare -F "${part}_$stage" >/dev/null || return 0
  log="$results/$stage.$part.log"
  # The shell of its own tells the CPU seconds of this part's processes.
  (
    "${part}_$stage"
    code=$?
    times >"$results/$stage.$part.times"
    exit $code
  ) >"$log" 2>&1 || outcome=FAILED
  cpu="$(awk -F'[ms ]+' '{ cpu += $1 * 60 + $2 + $3 * 60 + $4 } END { print cpu }' "$results/$stage.$part.times")"
  echo "$outcome $begin $SECONDS ${cpu:-0}" >"$parts/$stage.$part"
  printf '=== %s: %s %s after %d s\n%s\n' "$stage" "$part" "$outcome" $((SECONDS - begin)) "$(cat "$log")"
  [[ $outcome == ok ]]
}

# Compilers leave the cores to tests, whose clients and servers keep time. A process group, so that all of it can stop.
set -m
(
  renice -n 10 -p $BASHPID >/dev/null
  for stage in "${stages[@]}"; do
    run_part compile "$stage" || touch "$results/$stage.broken"
    touch "$results/$stage.compiled"
  done
) &
compiling=$!
set +m
trap 'kill -TERM -- "-$compiling" 2>/dev/null' EXIT
for stage in "${stages[@]}"; do
  if declare -F "compile_$stage" >/dev/null; then
    until [[ -f $results/$stage.compiled ]]; do sleep 0.2; done
  fi
  [[ -f $results/$stage.broken ]] || run_part test "$stage"
done
wait "$compiling"
python3 scripts/stage_budgets.py yardstick >>"$parts/yardstick"

echo
failed_stages=()
python3 scripts/stage_budgets.py table "$parts" || failed_stages+=(budgets)
printf 'setup %d s, all %d s\n\n' "$setup_s" "$SECONDS"
for stage in "${stages[@]}"; do
  grep -qs '^FAILED' "$parts/$stage".* && failed_stages+=("$stage")
done
# Fails if a test failed, and counts a failed stage that no test accounts for as one failure.
python3 scripts/count_tests.py "$results" "${failed_stages[@]}"
