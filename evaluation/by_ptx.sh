#!/usr/bin/env bash
# What older cards run, on a newer GPU (docs/cuda.md): programs with PTX of one compute capability alone, which the driver
# compiles and whose choices are those of that capability. Tests, the real model's tokens beside the host backend's, kernels,
# strategies, beside the program that is built for this GPU.
#
#   evaluation/by_ptx.sh OUT [STEP...]     without steps: all
#
# Steps are as in steps.sh; they end in the build's folder below build/ (cuda-release, cuda-75, cuda-80), of preset cuda-release
# with -DTANDEM_CUDA_ARCHITECTURES=75-virtual and 80-virtual, tests and benchmarks. MODEL names the file of SmolLM2-135M.
# A quarter of an hour of an H200.
set -uo pipefail

# shellcheck source=evaluation/steps.sh
source "$(dirname "$0")/steps.sh"
take_steps "$@"
shown_lines='\[  (PASSED|FAILED)|\[  SKIPPED \] [0-9]|all the same|NOT'
model=${MODEL:-models/SmolLM2-135M-Instruct.Q4_1.gguf}
if [[ ${#steps[@]} -eq 0 ]]; then
  for build in cuda-75 cuda-80 cuda-release; do
    steps+=(tests."$build" tokens."$build" attention."$build" products."$build" strategies."$build")
  done
fi

small=(--cpu-kv-cache 8000tok --gpu-kv-cache 1600tok --max-model-len 1024 --profile-seconds 4
  --workload synthetic:in=200,out=24 --num-requests 48)
every=(--strategies gpu-only,full-offload,asymmetric,async,apex,auto)

run_step() {
  local build=build/${1##*.}
  # Costs and choices of products are of this code alone.
  export XDG_CACHE_HOME=$PWD/$build/cache
  case "${1%%.*}" in
    tests)
      "$build/src/ops/ops_cuda_test" && "$build/tests/conformance_cuda_test" &&
        "$build/tests/engine_test" --gtest_filter='*cuda*:-*2_gpus*'
      ;;
    tokens) # fp32: every strategy's are the host's; fp16, which such a card computes in, is only run
      "$build/tandem" bench compare "$model" --device host --dtype fp32 "${small[@]}" --strategies auto \
        --json "$out/tokens_host_$1.json" &&
        "$build/tandem" bench compare "$model" --device cuda --dtype fp32 "${small[@]}" "${every[@]}" \
          --json "$out/tokens_fp32_$1.json" &&
        "$build/tandem" bench compare "$model" --device cuda --dtype fp16 "${small[@]}" "${every[@]}" \
          --json "$out/fp16_$1.json" &&
        python3 evaluation/same_tokens.py "$out/tokens_host_$1.json" "$out/tokens_fp32_$1.json"
      ;;
    attention) "$build/bench_cuda_attention" --dtype fp16 --only-own --json "$out/$1.json" ;;
    products) "$build/bench_cuda_linear" --dtype fp16 --only-own --rows 1,2,4,8 --json "$out/$1.json" ;;
    strategies)
      "$build/tandem" bench compare --dummy llama-3.1-8b --device cuda --dtype fp16 --gpu-kv-cache 26400tok \
        --cpu-kv-cache 160000tok --max-num-seqs 512 --profile-seconds 8 --strategies gpu-only,auto \
        --workload synthetic:in=1000,out=200 --num-requests 4000 --steady-start --duration 6 --warm-up 1.5 --json "$out/$1.json"
      ;;
    *)
      echo "by_ptx.sh: no step '$1'" >&2
      return 2
      ;;
  esac
}

run_steps "$out" "${steps[@]}"
