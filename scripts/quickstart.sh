#!/usr/bin/env bash
# From a fresh clone to a model that answers: installs packages, builds tandem, fetches SmolLM2-135M-Instruct,
# starts the server on 127.0.0.1 and sends it a first prompt. Ctrl-C stops the server. Later starts take seconds.
# Where a tandem is installed (on PATH), that one serves, and neither a compiler is installed nor anything built.
#
#   scripts/quickstart.sh                  port 8000, or the next free one
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
build_anyway=0
while [[ $# -gt 0 ]]; do
  case "$1" in
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    --port) port="${2:?--port needs a number}"; shift 2 ;;
    --prompt) prompt="${2:?--prompt needs a text}"; shift 2 ;;
    --check) check=1; shift ;;
    --build) build_anyway=1; shift ;;
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

preset=host-release
tandem="$root/build/$preset/tandem"
installed="$(command -v tandem || true)"
if [[ -n $installed && $build_anyway == 0 ]]; then
  tandem="$installed"
  echo "[quickstart] uses the installed $tandem; --build builds this checkout instead" >&2
  scripts/install_deps.sh --run
else
  installed=""
  echo "[quickstart] builds this checkout: build/$preset/tandem" >&2
  scripts/install_deps.sh
fi
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
build_tandem() { cmake --build --preset "$preset" --target tandem >"$scratch/build.log" 2>&1; }
build_checkout() {
  # An existing build folder configures itself anew when it has to.
  if [[ ! -f build/$preset/build.ninja ]]; then
    cmake --preset "$preset" >"$scratch/configure.log" 2>&1 || { cat "$scratch/configure.log" >&2; exit 1; }
  fi
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

start "$tandem" serve "$model" --host 127.0.0.1 --port "$port"
server=$job
until curl -sf -o "$scratch/health" "$url/health"; do
  kill -0 "$server" 2>/dev/null || { echo "quickstart.sh: the server did not start" >&2; exit 1; }
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
