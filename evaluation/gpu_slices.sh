#!/usr/bin/env bash
# What shards do on slices of one GPU (docs/tensor_parallel.md): tests, tokens of one shard and of several, decode iterations,
# strategies, a picture.
#
#   evaluation/gpu_slices.sh OUT [STEP...]     without steps: all
#
# Steps are as in steps.sh. Needs preset cuda-release with tests and benchmarks; BUILD names another build folder, MODEL the
# file of SmolLM2-135M. Five minutes of an H200.
set -uo pipefail

# shellcheck source=evaluation/steps.sh
source "$(dirname "$0")/steps.sh"
take_steps "$@"
shown_lines='decode |prefill |all the same|NOT'
build=${BUILD:-build/cuda-release}
model=${MODEL:-models/SmolLM2-135M-Instruct.Q4_1.gguf}
[[ ${#steps[@]} -gt 0 ]] || steps=(tests tokens_smollm2 tokens_8b sums 8b_one 8b_two_slices one_shard two_slices timeline)

eight=(--dummy llama-3.1-8b --device cuda --dtype bf16)
two=(--tensor-parallel-size 2 --gpu-sm-slices 2 --gpu-sm-limit 64)
iterations=(--strategy gpu-only --max-model-len 2200 --context 1024 --gpu-kv-cache 200000tok --batches 1,8,32,128)
strategies=(--gpu-kv-cache 26400tok --cpu-kv-cache 160000tok --max-num-seqs 512 --watts-per-core 10 --profile-seconds 8
  --strategies gpu-only,asymmetric,auto --workload synthetic:in=1000,out=200 --num-requests 4000 --steady-start --duration 14
  --warm-up 6)
# Requests of which every strategy has some in the cpu tier.
same_work=(--dtype fp32 --device cuda --cpu-kv-cache 8000tok --max-model-len 1024 --profile-seconds 4
  --strategies gpu-only,full-offload,asymmetric,async,apex,auto)

# NAME NUM_SHARDS FLAGS...: the same tokens whoever makes them.
compare_tokens() {
  local name=$1 num_shards=$2 slices=()
  shift 2
  [[ $num_shards -eq 1 ]] || slices=(--tensor-parallel-size "$num_shards" --gpu-sm-slices "$num_shards")
  "$build/tandem" bench compare "$@" "${same_work[@]}" "${slices[@]}" --json "$out/tokens_${name}_$num_shards.json"
}

run_step() {
  local num_shards
  case "$1" in
    tests)
      "$build/src/collective/collective_cuda_test" --gtest_filter='*slices*' &&
        "$build/tests/engine_test" --gtest_filter='*Shard*cuda*:*slices*:-*2_gpus*'
      ;;
    tokens_smollm2)
      for num_shards in 1 3; do
        compare_tokens smollm2 "$num_shards" "$model" --gpu-kv-cache 1600tok \
          --workload synthetic:in=200,out=24 --num-requests 48 || return
      done
      python3 evaluation/same_tokens.py "$out"/tokens_smollm2_*.json
      ;;
    tokens_8b)
      for num_shards in 1 2 4; do
        compare_tokens 8b "$num_shards" --dummy llama-3.1-8b --gpu-kv-cache 1600tok \
          --workload synthetic:in=200,out=24 --num-requests 24 || return
      done
      python3 evaluation/same_tokens.py "$out"/tokens_8b_*.json
      ;;
    sums) "$build/bench_collectives" --slices 2 >"$out/sums.json" ;;
    8b_one) "$build/bench_engine" "${eight[@]}" "${iterations[@]}" --json "$out/8b_one.json" ;;
    8b_two_slices) "$build/bench_engine" "${eight[@]}" "${two[@]}" "${iterations[@]}" --json "$out/8b_two_slices.json" ;;
    one_shard) "$build/tandem" bench compare "${eight[@]}" "${strategies[@]}" --json "$out/one_shard.json" ;;
    two_slices) "$build/tandem" bench compare "${eight[@]}" "${two[@]}" "${strategies[@]}" --json "$out/two_slices.json" ;;
    timeline)
      "$build/tandem" bench offline "${eight[@]}" "${two[@]}" --gpu-kv-cache 3000tok --cpu-kv-cache 150000tok \
        --max-num-seqs 256 --profile-seconds 8 --strategy asymmetric --workload synthetic:in=1000,out=200 \
        --num-requests 600 --steady-start --duration 4 --timeline "$out/timeline.json" --json "$out/timeline_run.json" &&
        python3 evaluation/figures/iteration_timeline.py "$out/timeline.json" --out "$out/timeline.svg" --json "$out/shares.json" &&
        rm "$out/timeline.json" # tens of megabytes
      ;;
    *)
      echo "gpu_slices.sh: no step '$1'" >&2
      return 2
      ;;
  esac
}

run_steps "$out" "${steps[@]}"
