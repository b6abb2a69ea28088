#!/usr/bin/env bash
# One host of several that have shards of a model. All run the same; what tells them apart is in the environment, as
# LeaderWorkerSet of Kubernetes sets it. Host 0 starts tandem on all of them by mpirun over ssh, the others have an sshd for it.
#
#   several_hosts.sh MODEL [--tensor-parallel-size N] ...    what `tandem serve` takes; N (or TANDEM_TENSOR_PARALLEL_SIZE): one
#                                                            shard a host without it
#
#   LWS_LEADER_ADDRESS   of host 0, as shards-0.shards.default; host 2 is then shards-0-2.shards.default
#   LWS_GROUP_SIZE       how many hosts there are
#   LWS_WORKER_INDEX     which of them this is
#   TANDEM_SSH_KEYS      folder with a key for all of them, id and id.pub (/ssh), as ssh-keygen -t ed25519 -N '' -f id makes it
#   TANDEM_SSH_PORT      of the sshd (2222: any user may have it)
#
# SIGTERM drains: host 0 ends when answers under way are finished, the others when they have no shard any more.
set -euo pipefail

fail() { echo "several_hosts.sh: $*" >&2; exit 1; }
case "${1:-}" in
  "" | -h | --help) sed -n '2,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
esac
for variable in LWS_LEADER_ADDRESS LWS_GROUP_SIZE LWS_WORKER_INDEX; do
  [[ -n ${!variable:-} ]] || fail "$variable is not set (see --help)"
done
keys="${TANDEM_SSH_KEYS:-/ssh}" port="${TANDEM_SSH_PORT:-2222}"
[[ -r $keys/id && -r $keys/id.pub ]] || fail "there is no key in $keys: id and id.pub (see --help)"
for tool in tandem ssh mpirun; do command -v "$tool" >/dev/null || fail "$tool is not installed"; done

own="$(mktemp -d)"
trap 'rm -rf "$own"' EXIT
# ssh and sshd want it to be nobody else's to read.
install -m 600 "$keys/id" "$own/id"
install -m 600 "$keys/id.pub" "$own/id.pub"
shards_here() { pgrep --runstates R,S,D,T -x tandem || true; }

if [[ $LWS_WORKER_INDEX != 0 ]]; then
  printf '%s\n' "Port $port" "HostKey $own/id" "AuthorizedKeysFile $own/id.pub" 'AuthenticationMethods publickey' 'UsePAM no' \
    'StrictModes no' 'PidFile none' >"$own/sshd_config"
  # Not at once: what it has started goes on, but this container ends with this script.
  trap 'while [[ -n $(shards_here) ]]; do sleep 0.2; done; kill %1; exit 0' TERM
  /usr/sbin/sshd -D -e -f "$own/sshd_config" &
  wait $!
  fail "sshd has ended"
fi

printf '%s\n' "Port $port" "IdentityFile $own/id" 'IdentitiesOnly yes' 'BatchMode yes' 'ConnectTimeout 5' 'HostKeyAlias shards' \
  "GlobalKnownHostsFile $own/known_hosts" 'UserKnownHostsFile /dev/null' 'LogLevel ERROR' >"$own/ssh_config"
echo "shards $(cut -d' ' -f1,2 "$own/id.pub")" >"$own/known_hosts"
arguments=("$@")
num_shards="${TANDEM_TENSOR_PARALLEL_SIZE:-}"
for ((i = 0; i < $#; ++i)); do
  case "${arguments[i]}" in
    --tensor-parallel-size) num_shards="${arguments[i + 1]:-none}" ;;
    --tensor-parallel-size=*) num_shards="${arguments[i]#*=}" num_shards="${num_shards:-none}" ;;
  esac
done
if [[ -z $num_shards ]]; then
  num_shards="$LWS_GROUP_SIZE"
  arguments+=(--tensor-parallel-size "$num_shards")
fi
[[ $num_shards =~ ^[0-9]+$ && $num_shards -ge $LWS_GROUP_SIZE ]] ||
  fail "--tensor-parallel-size '$num_shards' on $LWS_GROUP_SIZE hosts: each has a shard at least"

pod="${LWS_LEADER_ADDRESS%%.*}" domain=""
[[ $LWS_LEADER_ADDRESS != *.* ]] || domain=".${LWS_LEADER_ADDRESS#*.}"
for ((i = 0; i < LWS_GROUP_SIZE; ++i)); do
  host="$pod-$i$domain"
  ((i > 0)) || host="$(hostname)"
  # The first ones have one more where they are not even.
  echo "$host slots=$(((num_shards + LWS_GROUP_SIZE - 1 - i) / LWS_GROUP_SIZE))" >>"$own/hosts"
  ((i > 0)) || continue
  limit=$((SECONDS + 600))
  until ssh -F "$own/ssh_config" "$host" true 2>"$own/error"; do
    ((SECONDS < limit)) || fail "$host is not there after 600 s: $(cat "$own/error")"
    sleep 1
  done
done

# Settings, but not the key of the API: other ranks do not serve.
passed_on=()
while IFS='=' read -r name _; do
  [[ $name != TANDEM_* || $name == TANDEM_API_KEY ]] || passed_on+=(-x "$name")
done < <(env)
[[ $(id -u) != 0 ]] || passed_on+=(--allow-run-as-root)
rank_0() {
  local pid
  for pid in $(shards_here); do
    ! grep -zqx OMPI_COMM_WORLD_RANK=0 "/proc/$pid/environ" || echo "$pid"
  done
}
# mpirun would kill all a moment later.
told=0
trap 'told=1; kill -TERM $(rank_0) 2>/dev/null || true' TERM
mpirun -n "$num_shards" --bind-to none --hostfile "$own/hosts" --mca plm_rsh_agent "ssh -F $own/ssh_config" \
  --mca orte_keep_fqdn_hostnames 1 --mca odls_base_sigkill_timeout 8 "${passed_on[@]}" "$(command -v tandem)" serve "${arguments[@]}" &
while true; do
  told=0 code=0
  wait $! || code=$?
  ((told)) || break
done
exit "$code"
