#!/usr/bin/env bash
# Builds the images of deploy/Containerfile for the CPU with buildah, on a base that debootstrap makes (no image registry is
# asked), and serves the real model from them: over TLS with a key, and in three shards as a group of one host. Needs
# root and the Debian mirror that this machine's apt is configured for; fails without.
#
#   scripts/check_container.sh     ten minutes: all is compiled in the container
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/bare_debian.sh

case "${1:-}" in
  "") ;;
  -h | --help) sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) echo "check_container.sh: unknown argument '$1' (see --help)" >&2; exit 2 ;;
esac
fail() { echo "check_container.sh: $*" >&2; exit 1; }
begin=$SECONDS
passed() { printf '[container] %-56s %4d s\n' "$*" $((SECONDS - begin)); begin=$SECONDS; }

[[ $(id -u) == 0 ]] || fail "needs root, to make a bare Debian; nothing was checked"
if ! command -v buildah >/dev/null; then
  apt-get -qq update && apt-get -qq install -y --no-install-recommends buildah >/dev/null || fail "could not install buildah"
fi
model="$(scripts/fetch_model.sh | tail -n 1)"
# Travels along (.containerignore): the container need not know how this machine reaches PyPI.
scripts/fetch_xgrammar.sh >/dev/null

scratch="$(mktemp -d "$PWD/build/check_container.XXXXXX")"
# Images of this check alone, in its own folder, on any file system.
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
buildah_here() { buildah --root "$scratch/images" --runroot "$scratch/run" "$@"; }
quietly() { "$@" >"$scratch/log" 2>&1 || { tail -n 30 "$scratch/log" >&2; return 1; }; }
server="" port=""
# A container's processes: buildah's own, and what the entry point became and has started. All of them are told the port.
of_the_server() { pgrep -f -- " --port $port( |\$)"; }
clean_up() {
  local code=$?
  trap - EXIT
  # The files of what still runs are removed next.
  [[ -z $port ]] || of_the_server | xargs -r kill -KILL 2>/dev/null || true
  wait 2>/dev/null || true
  # What is mounted last first.
  findmnt -rno TARGET | grep -F "$scratch/" | tac | xargs -r -n 1 umount 2>/dev/null || true
  rm -rf --one-file-system "$scratch"
  exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

said="$(make_bare_debian "$scratch/root")" || fail "$said; nothing was checked"
base="$(buildah_here from scratch)"
quietly buildah_here copy "$base" "$scratch/root" /
quietly buildah_here commit "$base" tandem-base
quietly buildah_here rm "$base"
rm -rf --one-file-system "$scratch/root"
passed "base image of Debian $bare_suite"

# The second takes the layers of the first.
for target in cpu hosts; do
  quietly buildah_here build --layers --pull-never -f deploy/Containerfile --build-arg BASE=localhost/tandem-base --target "$target" \
    -t "tandem:$target" .
  passed "deploy/Containerfile, target $target"
done

mkdir "$scratch/models" "$scratch/tls" "$scratch/ssh"
cp "$model" "$scratch/models/model.gguf"
openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
  -keyout "$scratch/tls/key.pem" -out "$scratch/tls/certificate.pem" 2>/dev/null
ssh-keygen -q -t ed25519 -N '' -f "$scratch/ssh/id"
chmod -R a+rX "$scratch/models" "$scratch/tls" "$scratch/ssh"
key="key-$(openssl rand -hex 16)"

# TAG of the image, its ENTRY POINT, FLAGS of buildah run... -- ARGUMENTS...: starts it as the image says, by its entry point and
# its user, and waits until $scheme://localhost:$port is ready.
start() {
  local container entry image="$1" expected="$2" flags=()
  shift 2
  for (( ; $# > 0; )); do
    [[ $1 != -- ]] || break
    flags+=("$1")
    shift
  done
  port="$(python3 -c 'import socket; probe = socket.socket(); probe.bind(("127.0.0.1", 0)); print(probe.getsockname()[1])')"
  container="$(buildah_here from --pull-never "localhost/tandem:$image")"
  read -ra entry <<<"$(buildah_here inspect --format '{{range .OCIv1.Config.Entrypoint}}{{.}} {{end}}' "$container")"
  [[ ${entry[*]} == "$expected" ]] || fail "the image $image starts '${entry[*]}'"
  user="$(buildah_here run "$container" -- id -u)"
  [[ $user != 0 ]] || fail "the image $image runs as root"
  buildah_here run -e TANDEM_API_KEY="$key" -v "$scratch/models:/models:ro" "${flags[@]}" "$container" -- "${entry[@]}" \
    /models/model.gguf --port "$port" --max-model-len 1024 --gpu-kv-cache 4096tok "${@:2}" >"$scratch/server.log" 2>&1 &
  server=$!
  for _ in $(seq 600); do
    ask ready >/dev/null 2>&1 && break
    kill -0 "$server" 2>/dev/null || { cat "$scratch/server.log" >&2; fail "the server ended"; }
    sleep 0.1
  done
  ask ready >/dev/null || { cat "$scratch/server.log" >&2; fail "the server is not ready after a minute"; }
  passed "$image serves the model as user $user"
}
# As a pod is ended: SIGTERM to the entry point, and then nothing is left.
end() {
  local code=0
  pkill -TERM -P "$(pgrep -f "^buildah-chroot-exec .* --port $port( |\$)")" || fail "there is no entry point to tell"
  for _ in $(seq 200); do
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  [[ -z "$(of_the_server)" ]] || fail "20 s after SIGTERM there is still: $(of_the_server | xargs ps -o pid=,cmd= -p)"
  wait "$server" || code=$?
  [[ $code == 0 ]] || { cat "$scratch/server.log" >&2; fail "it ended with $code after SIGTERM"; }
  passed "$1 ends with 0 after SIGTERM"
}
ask() {  # path, arguments of curl...
  curl -sS --fail --cacert "$scratch/tls/certificate.pem" "$scheme://localhost:$port/$1" "${@:2}"
}
answers_with_a_key() {
  local answer body='{"prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}'
  local question=(v1/completions -H 'Content-Type: application/json' -d "$body")
  ! ask "${question[@]}" -o /dev/null 2>/dev/null || fail "it answers without a key"
  answer="$(ask "${question[@]}" -H "Authorization: Bearer $key")"
  [[ $answer == *Paris* ]] || fail "the answer is: $answer"
}

scheme=https
start cpu "tandem serve" -v "$scratch/tls:/tls:ro" -- --ssl-certfile /tls/certificate.pem --ssl-keyfile /tls/key.pem
answers_with_a_key
passed "answers with a key, over TLS"
end cpu

scheme=http
start hosts several_hosts.sh -v "$scratch/ssh:/ssh:ro" -e LWS_LEADER_ADDRESS=shards-0.shards.default -e LWS_GROUP_SIZE=1 \
  -e LWS_WORKER_INDEX=0 -e TANDEM_TENSOR_PARALLEL_SIZE=3 --
answers_with_a_key
[[ "$(pgrep -c -f "^[^ ]*tandem serve .*--port $port")" == 3 ]] || fail "there are no three shards"
passed "three shards, started by several_hosts.sh, answer with a key"
end hosts
