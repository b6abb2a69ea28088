#!/usr/bin/env bash
# From a fresh clone to a model that answers: installs packages, builds tandem, fetches SmolLM2-135M-Instruct,
# starts the server on 127.0.0.1 and sends it a first prompt. Ctrl-C stops the server. Later starts take seconds.
# With an NVIDIA GPU it builds for that GPU, with the CUDA toolkit that is here or else NVIDIA's from PyPI, and serves on it, with a cpu tier.
# Where a tandem is installed (on PATH), that one serves, and neither a compiler is installed nor anything built.
#
#   scripts/quickstart.sh                  port 8000, or the next free one
#   scripts/quickstart.sh --cpu            without the GPU
#   scripts/quickstart.sh --dry-run        says what it would serve with, download and build, and does nothing
#   scripts/quickstart.sh --build          builds this checkout though a tandem is installed
#   scripts/quickstart.sh --port 9000      this port or an error
#   scripts/quickstart.sh --prompt TEXT    another first prompt
#   scripts/quickstart.sh --check          stops after the first answer; fails if there is none
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"

port=""
prompt="What is the capital of France? Answer in one sentence."
check=0
cpu_only=0
dry_run=0
build_anyway=0
while [[ $# -gt 0 ]]; do
  case "$1" in
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    --port) port="${2:?--port needs a number}"; shift 2 ;;
    --prompt) prompt="${2:?--prompt needs a text}"; shift 2 ;;
    --check) check=1; shift ;;
    --build) build_anyway=1; shift ;;
    --cpu) cpu_only=1; shift ;;
    --dry-run) dry_run=1; shift ;;
    *) echo "quickstart.sh: unknown argument '$1' (see --help)" >&2; exit 2 ;;
  esac
done

now_ms() { date +%s%3N; }
start_ms="$(now_ms)"
stage_ms="$start_ms"
report() {  # what took the time since the last report
  local now
  now="$(now_ms)"
  printf '[quickstart] %-34s %4d.%d s\n' "$1" $(((now - stage_ms) / 1000)) $(((now - stage_ms) % 1000 / 100)) >&2
  stage_ms="$now"
}

say() { echo "[quickstart] $*" >&2; }

# Decided before anything is downloaded: which program, which backend, with which toolkit.
installed="$(command -v tandem || true)"
[[ $build_anyway == 1 ]] && installed=""
device=host nvcc="" capabilities=""
if [[ $cpu_only == 0 ]]; then
  has_cuda=1
  [[ -n $installed ]] && ! "$installed" --version | grep -q '^backends:.*cuda' && has_cuda=0
  # What is installed needs no toolkit, and says itself what it thinks of a driver.
  chosen="$(scripts/choose_cuda.sh)" || { [[ -n $installed ]] && chosen="fetch"; } || exit 1
  case "$chosen" in
    "cpu "*) say "serves on the CPU: ${chosen#cpu }" ;;
    *)
      if [[ $has_cuda == 0 ]]; then
        say "serves on the CPU: the installed $installed has no cuda backend; --build builds this checkout for the GPU"
      else
        device=cuda
        capabilities="$(sed -n 's/^capabilities //p' <<<"$chosen")"
        nvcc="$(sed -n 's/^toolkit //p' <<<"$chosen")"
      fi
      ;;
  esac
fi
preset=host-release
[[ $device == cuda ]] && preset=cuda-release
folder="build/$preset"
tandem="$root/$folder/tandem"

cached() { sed -n "s/^$1:[A-Z]*=//p" "$folder/CMakeCache.txt" 2>/dev/null; }  # a variable of the configured build
# What is configured has code for all GPUs of this machine.
has_code_for_gpus() {
  local architectures capability
  architectures="$(cached TANDEM_CUDA_ARCHITECTURES)"
  for capability in $capabilities; do
    [[ $architectures =~ (^|;)${capability/./}(a|f)?(-real)?(;|$) ]] || return 1
  done
}

if [[ -n $installed ]]; then
  tandem="$installed"
  say "uses the installed $tandem; --build builds this checkout instead"
  downloads=("$(scripts/fetch_model.sh --missing)")
else
  say "builds this checkout: $folder/tandem"
  downloads=("$(scripts/fetch_model.sh --missing)")
  if [[ $device == cuda ]]; then
    say "code for compute capability ${capabilities// /, }, with ${nvcc:-"NVIDIA's toolkit from PyPI"}"
    [[ -n $nvcc ]] || downloads+=("$(scripts/fetch_cuda.sh --missing)")
    downloads+=("$(scripts/fetch_flashinfer.sh --missing)")
  fi
fi
for download in "${downloads[@]}"; do [[ -z $download ]] || say "downloads $download"; done
if [[ $dry_run == 1 ]]; then
  say "would serve with --device $device"
  exit 0
fi

if [[ -n $installed ]]; then scripts/install_deps.sh --run; else scripts/install_deps.sh; fi
report "packages"

scratch="$(mktemp -d)"
server="" fetch="" build=""

# Starts a command in a process group of its own, so that all of it can be stopped; its id is in $job.
start() {
  set -m
  "$@" &
  job=$!
  set +m
}
stop_jobs() {
  local group
  for group in $fetch $build $server; do kill -TERM -- "-$group" 2>/dev/null || true; done
}
clean_up() {
  local code=$?
  trap - EXIT
  trap stop_jobs INT TERM  # a second Ctrl-C: the server stops at once instead of finishing its answers
  stop_jobs
  while [[ -n $server ]] && kill -0 "$server" 2>/dev/null; do wait "$server" || true; done
  rm -rf "$scratch"
  exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fetch_model() { scripts/fetch_model.sh >"$scratch/model" 2>"$scratch/fetch.log"; }
build_tandem() { cmake --build --preset "$preset" --target tandem -j "$(build_jobs)" >"$scratch/build.log" 2>&1; }
configure() {
  local options=()
  if [[ $device == cuda ]]; then
    if [[ -z $nvcc ]]; then
      nvcc="$(scripts/fetch_cuda.sh | tail -n 1)/bin/nvcc" || exit 1
      report "CUDA toolkit"
    fi
    scripts/fetch_flashinfer.sh >"$scratch/fetch_flashinfer.log" 2>&1 || { cat "$scratch/fetch_flashinfer.log" >&2; exit 1; }
    report "headers of FlashInfer"
    # A cache does not change its compiler.
    [[ $(cached CMAKE_CUDA_COMPILER) == "$nvcc" ]] || rm -rf "$folder/CMakeCache.txt" "$folder/CMakeFiles" "$folder/build.ninja"
    has_code_for_gpus || rm -f "$folder/build.ninja"
    options=(-DCMAKE_CUDA_COMPILER="$nvcc" -DTANDEM_CUDA_ARCHITECTURES=native)
  fi
  # An existing build folder configures itself anew when it has to.
  [[ ! -f $folder/build.ninja ]] || return 0
  cmake --preset "$preset" "${options[@]}" >"$scratch/configure.log" 2>&1 || { cat "$scratch/configure.log" >&2; exit 1; }
}
# One file of the cuda backend takes 1 GiB to compile, the largest (9.0 alone) 3.7.
build_jobs() {
  local jobs by_memory
  jobs="$(nproc)"
  by_memory="$(awk '/^MemAvailable/ { print int($2 / 1048576 / 2) }' /proc/meminfo)"
  [[ $device == cuda && $by_memory -lt $jobs ]] && jobs="$by_memory"
  echo $((jobs > 1 ? jobs : 1))
}
build_checkout() {
  configure
  start build_tandem
  build=$job
  # A line now and then: on two cores a first build takes minutes.
  while kill -0 "$build" 2>/dev/null; do
    for _ in {1..300}; do
      kill -0 "$build" 2>/dev/null || break
      sleep 0.1
    done
    kill -0 "$build" 2>/dev/null && sed -n '$s/^\(\[[0-9/]*\]\).*/[quickstart]   building \1/p' "$scratch/build.log" >&2
  done
  wait "$build" || { tail -n 40 "$scratch/build.log" >&2; echo "quickstart.sh: the build failed" >&2; exit 1; }
  build=""
  report "build"
}
# The download and the compiler do not get into each other's way.
start fetch_model
fetch=$job
[[ -n $installed ]] || build_checkout
wait "$fetch" || { cat "$scratch/fetch.log" >&2; exit 1; }
fetch=""
model="$(tail -n 1 "$scratch/model")"
report "model"

port_is_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
if [[ -n $port ]]; then
  port_is_free "$port" || { echo "quickstart.sh: port $port is in use" >&2; exit 1; }
else
  port=8000
  until port_is_free "$port"; do port=$((port + 1)); done
fi
url="http://127.0.0.1:$port"

# The model is small, and so is a cpu tier that has room for any of its answers.
serve_flags=(--device "$device") gpu_hint=""
[[ $device == cuda ]] && serve_flags+=(--cpu-kv-cache 1GiB) && gpu_hint="; --cpu goes without the GPU"
start "$tandem" serve "$model" --host 127.0.0.1 --port "$port" "${serve_flags[@]}"
server=$job
until curl -sf -o "$scratch/health" "$url/health"; do
  kill -0 "$server" 2>/dev/null || { echo "quickstart.sh: the server did not start$gpu_hint" >&2; exit 1; }
  sleep 0.05
done
report "server ready"
ready_ms=$(($(now_ms) - start_ms))

# Prints the words of a streamed chat completion as they come; fails if there are none or the stream breaks off.
cat >"$scratch/print_stream.py" <<'PYTHON'
import json
import sys

text = ""
done = False
for line in sys.stdin:
    if line.startswith("data: "):
        data = line[len("data: "):].strip()
        if data == "[DONE]":
            done = True
            break
        for choice in json.loads(data).get("choices", []):
            piece = choice.get("delta", {}).get("content") or ""
            text += piece
            print(piece, end="", flush=True)
    elif line.strip():
        print(line.strip(), file=sys.stderr)
print(flush=True)
sys.exit(0 if done and text.strip() else 1)
PYTHON
python3 - "$prompt" >"$scratch/request.json" <<'PYTHON'
import json, sys

message = {"role": "user", "content": sys.argv[1]}
print(json.dumps({"messages": [message], "max_tokens": 100, "temperature": 0, "stream": True}))
PYTHON

printf '\n> %s\n' "$prompt" >&2
if ! curl -sSN "$url/v1/chat/completions" -H 'Content-Type: application/json' -d "@$scratch/request.json" |
  python3 -u "$scratch/print_stream.py"; then
  echo "quickstart.sh: no answer to the first prompt" >&2
  exit 1
fi
printf '\n' >&2
report "first answer"

# The two tiers, by the server's own counters.
cat >"$scratch/print_tiers.py" <<'PYTHON'
import re
import sys

values = {}
for line in sys.stdin:
    sample = re.match(r"tandem:(\w+)(\{.*\})? (\S+)$", line)
    if sample:
        tier = re.search(r'\btier="(\w+)"', sample[2] or "")
        values[sample[1], tier and tier[1]] = float(sample[3])
block = values["kv_block_size_tokens", None]
from_cpu = values["cpu_tier_tokens_total", None]
decoded = {"gpu": values["drawn_tokens_total", None] - from_cpu, "cpu": from_cpu}
for tier in ("gpu", "cpu"):
    room = values["kv_blocks", tier] * block
    text = f"KV of {room:,.0f} tokens; {decoded[tier]:.0f} tokens so far came from it" if room else "none here"
    print(f"[quickstart] {tier} tier: {text}", file=sys.stderr)
PYTHON
curl -sS "$url/metrics" | python3 "$scratch/print_tiers.py"
printf '[quickstart] %-34s %4d.%d s\n' "start to ready" $((ready_ms / 1000)) $((ready_ms % 1000 / 100)) >&2

if [[ $check == 1 ]]; then
  kill -TERM "$server"
  wait "$server" && code=0 || code=$?
  server=""
  [[ $code == 0 ]] || { echo "quickstart.sh: the server ended with exit code $code" >&2; exit 1; }
  exit 0
fi

cat >&2 <<TEXT

The server runs at $url (Ctrl-C stops it). From another terminal:

  curl $url/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"messages": [{"role": "user", "content": "Write a haiku about rivers."}]}'

  $tandem generate $model -p "Once upon a time" -n 50

Any OpenAI client works with base_url = $url/v1.
Endpoints, flags and metrics: docs/serving.md. Other models: docs/models.md.

TEXT
wait "$server"
