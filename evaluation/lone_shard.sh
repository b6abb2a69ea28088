#!/usr/bin/env bash
# Llama-3.1-70B by one shard of two on one H200, the other taken to be equal (docs/tensor_parallel.md): decode iterations and
# prefill, and NEO's work for two cards of 80 GB by every strategy. Sums take what two H200 took.
#
#   evaluation/lone_shard.sh OUT [STEP...]     without steps: all
#
# Steps are as in steps.sh. Needs preset cuda-release with benchmarks; BUILD names another build folder. REPEAT rounds of the
# works, 1 without it: then half an hour of an H200, of a host with 128 GiB.
set -uo pipefail

# shellcheck source=evaluation/steps.sh
source "$(dirname "$0")/steps.sh"
take_steps "$@"
shown_lines='decode |prefill |  (gpu-only|full-offload|asymmetric|async|apex|auto) '
build=${BUILD:-build/cuda-release}
[[ ${#steps[@]} -gt 0 ]] || steps=(iterations {works,lengths_1000,lengths_2000}_{49gb,110gb})

shard=(--dummy llama-3.1-70b --device cuda --dtype bf16 --tensor-parallel-size 2
  --lone-shard evaluation/comparisons/sums_two_h200.json --gpu-memory-utilization 0.97)

# Tiers of both shards together: what two cards of 80 GB leave, and 49 or 110 GB of host memory for each shard.
#   works_of NAME_49gb|NAME_110gb IN/OUT|WORKLOAD...
works_of() {
  local cpu_tokens=300000 workloads=()
  [[ $1 == *_49gb ]] || cpu_tokens=670000
  for each in "${@:2}"; do
    [[ $each != */* ]] || each="synthetic:in=${each%/*},out=${each#*/}"
    workloads+=(--workload "$each")
  done
  "$build/tandem" bench compare "${shard[@]}" --gpu-kv-cache 39000tok --cpu-kv-cache "${cpu_tokens}tok" --max-num-seqs 512 \
    --profile-seconds 15 --num-requests 2000 --steady-start --duration 9 --warm-up 2.5 --repeat "${REPEAT:-1}" \
    "${workloads[@]}" --strategies gpu-only,full-offload,asymmetric,async,apex,auto --json "$out/$1.json"
}

run_step() {
  case "$1" in
    iterations) # floors are those of the whole model, so rates are of two
      "$build/bench_engine" "${shard[@]}" --strategy gpu-only --max-model-len 2200 --context 1024 --prompt-len 2048 \
        --memory-rate 9.3e12 --flop-rate 1616e12 --gpu-kv-cache 75000tok --batches 1,8,32,64 --prefills 1,4 \
        --json "$out/iterations.json"
      ;;
    works_49gb | works_110gb) works_of "$1" 2000/200 1000/300 ;;
    lengths_1000_49gb | lengths_1000_110gb) works_of "$1" 1000/50 1000/100 1000/200 1000/400 ;;
    lengths_2000_49gb | lengths_2000_110gb) works_of "$1" 2000/50 2000/100 2000/300 azure-code ;;
    *)
      echo "lone_shard.sh: no step '$1'" >&2
      return 2
      ;;
  esac
}

run_steps "$out" "${steps[@]}"
