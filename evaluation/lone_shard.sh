#!/usr/bin/env bash
# Llama-3.1-70B by one shard of two on one H200, the other taken to be equal (docs/tensor_parallel.md): decode iterations and
# prefill, and NEO's work for two cards of 80 GB by every strategy. Sums take what two H200 took.
#
#   evaluation/lone_shard.sh OUT [STEP...]     without steps: all
#
# Steps are as in steps.sh. Needs preset cuda-release with benchmarks; BUILD names another build folder. Five minutes of an H200.
set -uo pipefail

# shellcheck source=evaluation/steps.sh
source "$(dirname "$0")/steps.sh"
take_steps "$@"
shown_lines='decode |prefill |  (gpu-only|full-offload|asymmetric|async|apex|auto) '
build=${BUILD:-build/cuda-release}
[[ ${#steps[@]} -gt 0 ]] || steps=(iterations works_2000 works_1000)

shard=(--dummy llama-3.1-70b --device cuda --dtype bf16 --tensor-parallel-size 2
  --lone-shard evaluation/comparisons/sums_two_h200.json --gpu-memory-utilization 0.97)

run_step() {
  local work
  case "$1" in
    iterations) # floors are those of the whole model, so rates are of two
      "$build/bench_engine" "${shard[@]}" --strategy gpu-only --max-model-len 2200 --context 1024 --prompt-len 2048 \
        --memory-rate 9.3e12 --flop-rate 1616e12 --gpu-kv-cache 75000tok --batches 1,8,32,64 --prefills 1,4 \
        --json "$out/iterations.json"
      ;;
    works_2000 | works_1000) # tiers of both shards together: what two cards of 80 GB leave, and 49 GB of host memory each
      work=synthetic:in=2000,out=200
      [[ $1 == works_2000 ]] || work=synthetic:in=1000,out=300
      "$build/tandem" bench compare "${shard[@]}" --gpu-kv-cache 39000tok --cpu-kv-cache 300000tok --max-num-seqs 512 \
        --profile-seconds 15 --num-requests 2000 --steady-start --duration 9 --warm-up 2.5 \
        --workload "$work" --strategies gpu-only,full-offload,asymmetric,async,apex,auto --json "$out/$1.json"
      ;;
    *)
      echo "lone_shard.sh: no step '$1'" >&2
      return 2
      ;;
  esac
}

run_steps "$out" "${steps[@]}"
