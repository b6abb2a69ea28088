#!/usr/bin/env bash
# What shards do on two GPUs (docs/tensor_parallel.md), in one process and in two: tests, tokens, sums, iterations, each way of
# summing, a picture, and the work of NEO's figures 6a, 8, 9a and 10b with Llama-3.1-70B.
#
#   evaluation/two_gpus.sh OUT [STEP...]     without steps: all
#
# Steps are as in steps.sh. Needs preset cuda-release with tests and benchmarks; BUILD names another build folder.
# Half an hour of two H200 from an empty folder, most of it the strategies. azure_code_at_once is beside vLLM where VLLM
# names the environment that evaluation/peers/peer_unpack.sh wrote.
set -uo pipefail

# shellcheck source=evaluation/steps.sh
source "$(dirname "$0")/steps.sh"
take_steps "$@"
shown_lines='decode |prefill '
build=${BUILD:-build/cuda-release}
all=(tests tokens processes killed sums 8b_one_gpu 8b_two_gpus 8b_two_gpus_without_one-shot 8b_two_gpus_without_nccl 70b 70b_without_one-shot 70b_without_nccl timeline strategies other_strategies riders_by_sums load azure_code_at_once)
[[ ${#steps[@]} -gt 0 ]] || steps=("${all[@]}")

eight=(--dummy llama-3.1-8b --device cuda --dtype bf16)
seventy=(--dummy llama-3.1-70b --device cuda --dtype bf16 --tensor-parallel-size 2 --gpu-memory-utilization 0.97)
iterations=(--strategy gpu-only --max-model-len 2200 --context 1024 --prompt-len 2048)
# Twice what one H200 has, since floors of bench_engine are those of the whole model.
of_two=(--memory-rate 9.3e12 --flop-rate 1616e12)
short=(--gpu-kv-cache 75000tok)
# What two cards of 80 GB leave, and 49 GB of host memory a shard.
tiers=(--gpu-kv-cache 39000tok --cpu-kv-cache 300000tok --max-num-seqs 512 --profile-seconds 15)
window=(--num-requests 2000 --steady-start --duration 9 --warm-up 2.5)

# Requests of which every strategy has some in the cpu tier.
same_work=(--dtype fp32 --device cuda --gpu-kv-cache 1600tok --cpu-kv-cache 8000tok --max-model-len 1024 --profile-seconds 4
  --strategies gpu-only,full-offload,asymmetric,async,apex,auto --workload synthetic:in=200,out=24 --num-requests 24)
in_processes=(mpirun -n 2 --allow-run-as-root --bind-to none)

run_step() {
  local without=() works=() lengths
  case "$1" in
    tests)
      "$build/src/collective/collective_cuda_test" --gtest_filter='*2_gpus' &&
        "$build/tests/engine_test" --gtest_filter='*Shard*cuda*:-*slices*' &&
        "${in_processes[@]}" "$build/tests/processes_test" --gtest_filter='*cuda*'
      ;;
    tokens)
      for model in llama-3.2-1b llama-3.1-8b; do
        for gpus in 1 2; do
          "$build/tandem" bench compare --dummy "$model" "${same_work[@]}" --tensor-parallel-size "$gpus" \
            --json "$out/tokens_${model}_$gpus.json" || return
        done
      done
      python3 evaluation/same_tokens.py "$out"/tokens_*.json
      ;;
    processes) # after the step tokens, whose digests are compared too
      for model in llama-3.2-1b llama-3.1-8b; do
        "${in_processes[@]}" "$build/tandem" bench compare --dummy "$model" "${same_work[@]}" --tensor-parallel-size 2 \
          --json "$out/tokens_${model}_processes.json" || return
      done
      python3 evaluation/same_tokens.py "$out"/tokens_*.json
      ;;
    killed) python3 evaluation/killed_shard.py "$build/tandem" --dummy llama-3.2-1b --device cuda --dtype fp32 --profile-seconds 4 ;;
    sums) "$build/bench_collectives" --gpus 2 >"$out/sums.json" ;;
    8b_one_gpu)
      "$build/bench_engine" "${eight[@]}" "${iterations[@]}" --gpu-kv-cache 600000tok --batches 1,32,256 --prefills 4 \
        --json "$out/8b_one_gpu.json"
      ;;
    8b_two_gpus | 8b_two_gpus_without_*)
      [[ $1 == 8b_two_gpus ]] || without=(--without "${1#8b_two_gpus_without_}")
      "$build/bench_engine" "${eight[@]}" --tensor-parallel-size 2 "${iterations[@]}" "${of_two[@]}" "${without[@]}" \
        --gpu-kv-cache 600000tok --batches 1,32,256 --prefills 4 --json "$out/$1.json"
      ;;
    70b)
      "$build/bench_engine" "${seventy[@]}" "${iterations[@]}" "${of_two[@]}" "${short[@]}" --batches 1,8,32,64 \
        --prefills 1,4 --json "$out/70b.json"
      ;;
    70b_without_*)
      "$build/bench_engine" "${seventy[@]}" "${iterations[@]}" "${of_two[@]}" "${short[@]}" --batches 1,64 --prefills 4 \
        --without "${1#70b_without_}" --json "$out/$1.json"
      ;;
    strategies)
      for lengths in in=1000,out={50,100,200,300,400} in=2000,out={50,100,200,300}; do
        works+=(--workload "synthetic:$lengths")
      done
      "$build/tandem" bench compare "${seventy[@]}" "${tiers[@]}" "${window[@]}" --strategies gpu-only,asymmetric,auto \
        --workload azure-code "${works[@]}" --json "$out/strategies.json"
      ;;
    other_strategies)
      "$build/tandem" bench compare "${seventy[@]}" "${tiers[@]}" "${window[@]}" --strategies async,full-offload,apex \
        --workload synthetic:in=1000,out=300 --workload synthetic:in=1000,out=50 --workload synthetic:in=2000,out=200 \
        --workload azure-code --json "$out/other_strategies.json"
      ;;
    riders_by_sums) # each way of summing with and without riders
      for without in '' nccl one-shot; do
        "$build/tandem" bench compare "${seventy[@]}" "${tiers[@]}" "${window[@]}" --strategies gpu-only,async \
          --workload synthetic:in=1000,out=300 ${without:+--without "$without"} --json "$out/riders${without:+_without_$without}.json" || return
      done
      ;;
    load) # 6a and 8a
      "$build/tandem" bench compare "${seventy[@]}" "${tiers[@]}" --strategies gpu-only,full-offload,asymmetric,auto --workload azure-code \
        --rate 2 --rate 3 --duration 25 --warm-up 5 --json "$out/load.json"
      ;;
    azure_code_at_once)
      python3 evaluation/peers/compare_engines.py --tandem "$build/tandem" --plan evaluation/comparisons/two_gpus_h200.json \
        ${VLLM:+--vllm-env "$VLLM"} --repeat 1 --json "$out/azure_code_at_once.json"
      ;;
    timeline)
      "$build/tandem" bench offline "${eight[@]}" --tensor-parallel-size 2 --gpu-kv-cache 3000tok \
        --cpu-kv-cache 150000tok --max-num-seqs 256 --profile-seconds 10 --strategy asymmetric \
        --workload synthetic:in=1000,out=200 --num-requests 600 --steady-start --duration 4 --timeline "$out/timeline.json" \
        --json "$out/timeline_run.json" &&
        python3 evaluation/figures/iteration_timeline.py "$out/timeline.json" --out "$out/timeline.svg" --json "$out/shares.json"
      ;;
    *)
      echo "two_gpus.sh: no step '$1'; there are ${all[*]}" >&2
      return 2
      ;;
  esac
}

run_steps "$out" "${steps[@]}"
