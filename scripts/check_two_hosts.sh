#!/usr/bin/env bash
# Shards of a model on two hosts, as docs/tensor_parallel.md says it: mpirun starts them over ssh, they exchange over TCP.
# The hosts are namespaces of this machine, each with its own network, name, processes, shared memory and sshd; a veth
# pair is all that joins them. Compares tokens with one process, kills the shard on the other host amid a stream, starts
# again, cuts the link; where slurm-wlm is installed, through srun too; and by deploy/several_hosts.sh, as a user who is not
# root, as pods of Kubernetes would. Ends with 77 and one sentence where it may not
# make namespaces (root may), or where openssh-server or openmpi-bin is not installed.
#
#   scripts/check_two_hosts.sh [TANDEM]     three minutes; default: build/host-release/tandem
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
  -h | --help) sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  -*) echo "check_two_hosts.sh: unknown argument '$1' (see --help)" >&2; exit 2 ;;
esac
fail() { echo "check_two_hosts.sh: $*" >&2; exit 1; }
begin=$SECONDS
passed() { printf '[hosts] %-70s %4d s\n' "$*" $((SECONDS - begin)); begin=$SECONDS; }

tandem="$(realpath -e "${1:-build/host-release/tandem}")" || fail "there is no such program; nothing was checked"
if [[ $(id -u) != 0 ]] ||
  ! unshare --net --uts --mount --pid --ipc --fork --mount-proc sh -c 'ip link add one type veth peer name two' 2>/dev/null; then
  echo "check_two_hosts.sh: skipped: this user may not make namespaces with a link between them"
  exit 77
fi
# Not for this script to install: a server of ssh would then run on this machine too.
for tool in ssh:openssh-client sshd:openssh-server mpirun:openmpi-bin; do
  PATH="$PATH:/usr/sbin" command -v "${tool%:*}" >/dev/null && continue
  echo "check_two_hosts.sh: skipped: ${tool#*:} is not installed"
  exit 77
done
model="$(realpath -e "$(scripts/fetch_model.sh | tail -n 1)")"

scratch="$(mktemp -d "$PWD/build/check_two_hosts.XXXXXX")"
declare -A init unshared  # by host: its first process, and who waits for that one
clean_up() {
  local code=$?
  trap - EXIT
  # All of a host ends with its first process, and its end of the link too.
  for host in "${!init[@]}"; do kill -KILL "${init[$host]}" 2>/dev/null || true; done
  wait 2>/dev/null || true
  # What mpirun and its daemons leave when they are killed.
  rm -rf --one-file-system "$scratch" "${TMPDIR:-/tmp}"/ompi.host-{a,b}.0
  exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Two hosts. What ssh and sshd of this machine are told counts for nothing: /etc/ssh is the run's own.
address() { [[ $1 == host-a ]] && echo 10.77.0.1 || echo 10.77.0.2; }
(
  umask 077
  mkdir "$scratch/ssh"
  cd "$scratch/ssh"
  ssh-keygen -q -t ed25519 -N '' -f user
  ssh-keygen -q -t ed25519 -N '' -f host
  cp user.pub authorized_keys
  echo "host-a,host-b,$(address host-a),$(address host-b) $(cut -d' ' -f1,2 host.pub)" >known_hosts
  printf '%s\n' 'IdentityFile /etc/ssh/user' 'IdentitiesOnly yes' 'BatchMode yes' 'UserKnownHostsFile /dev/null' \
    'GlobalKnownHostsFile /etc/ssh/known_hosts' >ssh_config
  printf '%s\n' 'HostKey /etc/ssh/host' 'AuthorizedKeysFile /etc/ssh/authorized_keys' 'AuthenticationMethods publickey' \
    'PermitRootLogin prohibit-password' 'UsePAM no' 'PidFile none' >sshd_config
)
# They are pods of Kubernetes too.
printf '%s\n' '127.0.0.1 localhost' "$(address host-a) host-a shards-0.shards.default" \
  "$(address host-b) host-b shards-0-1.shards.default" >"$scratch/etc_hosts"
for host in host-a host-b; do
  unshare --net --uts --mount --pid --ipc --fork --kill-child=KILL --mount-proc bash -euc '
    hostname "$1"
    mount --bind "$2/etc_hosts" /etc/hosts
    mount --bind "$2/ssh" /etc/ssh
    mount -t tmpfs -o mode=0755 tmpfs /run
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm
    mkdir /run/sshd
    exec /usr/sbin/sshd -D -e' host "$host" "$scratch" 2>"$scratch/$host.sshd" &
  unshared[$host]=$!
  for _ in $(seq 200); do
    read -r "init[$host]" <"/proc/${unshared[$host]}/task/${unshared[$host]}/children" || true
    [[ -n ${init[$host]:-} ]] && grep -q listening "$scratch/$host.sshd" && break
    kill -0 "${unshared[$host]}" 2>/dev/null || break
    sleep 0.05
  done
  grep -q listening "$scratch/$host.sshd" || fail "no sshd on $host: $(cat "$scratch/$host.sshd")"
done
on() {  # host, command...
  local host="$1"
  shift
  nsenter --target "${init[$host]}" --net --uts --mount --pid --ipc "$@"
}
ip link add eth0 netns "${init[host-a]}" type veth peer name eth0 netns "${init[host-b]}"
for host in host-a host-b; do
  on "$host" ip address add "$(address "$host")/24" dev eth0
  on "$host" ip link set lo up
  on "$host" ip link set eth0 up
done
[[ $(on host-a ssh host-b hostname) == host-b ]] || fail "host-a does not reach host-b by ssh"
passed "two hosts, joined by a link"

# What docs/tensor_parallel.md has for several hosts. Rank 0 and 1 are on host-a, rank 2 on host-b.
sigkill_s=8
printf '%s\n' 'host-a slots=2' 'host-b slots=1' >"$scratch/HOSTS"
several=(mpirun -n 3 --bind-to none --hostfile "$scratch/HOSTS" --mca btl_tcp_if_include 10.77.0.0/24
  --mca oob_tcp_if_include 10.77.0.0/24 --mca odls_base_sigkill_timeout "$sigkill_s" --allow-run-as-root)
url=http://127.0.0.1:8000
launcher=""
what=("$model" --tensor-parallel-size 3 --dtype fp32 --cpu-threads 2 --max-model-len 1024 --gpu-kv-cache 4096tok
  --log-level warn --port 8000)
wait_until_ready() {
  for _ in $(seq 900); do
    on host-a curl -sf -o /dev/null "$url/ready" && return
    kill -0 "$launcher" 2>/dev/null || break
    sleep 0.1
  done
  cat "$scratch/out" "$scratch/err" >&2
  fail "the server is not ready"
}
start() {  # launcher...
  on host-a "$@" "$tandem" serve "${what[@]}" >"$scratch/out" 2>"$scratch/err" &
  launcher=$!
  wait_until_ready
}
ask() {
  on host-a curl -sS --fail -H 'Content-Type: application/json' "$url/v1/completions" -d '{"prompt": "The capital of France is",
    "max_tokens": 16, "temperature": 0, "logprobs": 3}' | python3 -c 'import json, sys; print(json.load(sys.stdin)["choices"])'
}
# In the host's own numbers, without those that are dead and not yet asked for. pgrep compares 15 characters.
name="$(basename "$tandem" | cut -c1-15)"
shards_on() { on "$1" pgrep --runstates R,S,D,T -x "$name" || true; }
rank_0() {
  local pid
  for pid in $(shards_on host-a); do
    ! on host-a grep -zqE '^(OMPI_COMM_WORLD_RANK|PMIX_RANK)=[1-9]' "/proc/$pid/environ" || continue
    echo "$pid"
  done
}
now_ms() { date +%s%3N; }
seconds_since() { awk -v ms=$(($(now_ms) - $1)) 'BEGIN { printf "%.1f", ms / 1000 }'; }
nobody_is_left() {
  local host left
  for host in host-a host-b; do
    left="$(on "$host" ps -eo comm= | grep -xE "$name|mpirun|orted|srun|slurmstepd" || true)"
    [[ -z $left ]] || fail "left over on $host: $left"
  done
}
wait_for_launcher() {  # seconds; sets code
  local limit=$((SECONDS + $1))
  while kill -0 "$launcher" 2>/dev/null; do
    ((SECONDS < limit)) || { on host-a ps -ef >&2; fail "it has not ended within $1 s"; }
    sleep 0.1
  done
  code=0
  wait "$launcher" || code=$?
}

start env
one_process="$(ask)"
[[ $one_process == *Paris* ]] || fail "one process answers: $one_process"
drain() {  # rank 0's process ends all
  on host-a kill -TERM "$(rank_0)"
  wait_for_launcher 30
  [[ $code == 0 ]] || { cat "$scratch/err" >&2; fail "it ended with $code after SIGTERM"; }
  nobody_is_left
}
drain
passed "three shards in one process"

start "${several[@]}"
[[ $(shards_on host-a | wc -l) == 2 && $(shards_on host-b | wc -l) == 1 ]] || fail "the shards are not on both hosts"
[[ $(ask) == "$one_process" ]] || fail "two hosts answer otherwise than one process"
passed "on two hosts: tokens and logprobs of one process"
drain
passed "SIGTERM to rank 0's process: all end with 0"

# The client's stream ends with the sentence, within 10 s of the fault. Sets fault_ms.
stream_until_fault() {
  on host-a curl -sSN -H 'Content-Type: application/json' "$url/v1/completions" \
    -d '{"prompt": "Once upon a time", "max_tokens": 900, "temperature": 0, "ignore_eos": true, "stream": true}' >"$scratch/stream" &
  local client=$! sentence="$1" code=0
  shift
  for _ in $(seq 300); do
    [[ $(grep -c '^data: {"id"' "$scratch/stream") -lt 3 ]] || break
    sleep 0.1
  done
  [[ $(grep -c '^data: {"id"' "$scratch/stream") -ge 3 ]] || fail "no stream within 30 s"
  fault_ms="$(now_ms)"
  "$@"
  wait "$client" || code=$?
  local ms=$(($(now_ms) - fault_ms))
  grep -q "^data: {\"error\":{\"message\":\"$sentence\"" "$scratch/stream" ||
    { tail -n 3 "$scratch/stream" "$scratch/err" >&2; fail "the stream ended with $code after $ms ms and not with '$sentence'"; }
  ((ms < 10000)) || fail "the stream ended only after $ms ms"
  passed "the stream ends with '$sentence', after $(seconds_since "$fault_ms") s"
}
# For each process of a host mpirun waits for so long.
ends_with_an_error() {
  wait_for_launcher 120
  [[ $code != 0 ]] || fail "it ended with 0"
  nobody_is_left
  grep -q "^tandem: $1" "$scratch/err" || { cat "$scratch/err" >&2; fail "rank 0 did not say '$1'"; }
  passed "${2##*/} ends with $code after $(seconds_since "$fault_ms") s, and nobody is left"
}
start "${several[@]}"
gone='shard 2 of 3 has not been heard of for 6 s'
stream_until_fault "$gone" on host-b kill -KILL "$(shards_on host-b)"
ends_with_an_error "$gone" mpirun

if command -v srun slurmctld slurmd munged >/dev/null; then
  # All that it writes goes to /run, which each host has for itself.
  mkdir "$scratch/slurm"
  head -c 1024 /dev/urandom >"$scratch/slurm/munge.key"
  printf '%s\n' ClusterName=two "SlurmctldHost=host-a($(address host-a))" SlurmUser=root SlurmdUser=root TmpFS=/run/tmp \
    ProctrackType=proctrack/linuxproc TaskPlugin=task/none StateSaveLocation=/run/slurm SlurmdSpoolDir=/run/slurmd \
    SlurmctldPidFile=/run/slurmctld.pid SlurmdPidFile=/run/slurmd.pid SlurmctldLogFile=/run/slurmctld.log \
    SlurmdLogFile=/run/slurmd.log SelectType=select/cons_tres "NodeName=host-a NodeAddr=$(address host-a) CPUs=$(nproc)" \
    "NodeName=host-b NodeAddr=$(address host-b) CPUs=$(nproc)" 'PartitionName=all Nodes=ALL Default=YES' >"$scratch/slurm/slurm.conf"
  for host in host-a host-b; do
    on "$host" bash -euc '
      mkdir -p /run/munge /run/tmp /run/slurm /etc/slurm
      mount --bind "$1" /etc/slurm
      install -m 600 "$1/munge.key" /run/munge/key
      munged --key-file=/run/munge/key --pid-file=/run/munge/pid --log-file=/run/munge/log --seed-file=/run/munge/seed
      [[ $(hostname) != host-a ]] || slurmctld
      slurmd -N "$(hostname)"' slurm "$scratch/slurm" || fail "Slurm does not start on $host"
  done
  with_slurm=(srun -N 2 -n 3 --mpi=pmix --overcommit)
  for _ in $(seq 100); do
    [[ $(on host-a sinfo --noheader --states=idle --format=%D) != 2 ]] || break
    sleep 0.1
  done
  start "${with_slurm[@]}"
  [[ $(shards_on host-a | wc -l) == 2 && $(shards_on host-b | wc -l) == 1 ]] || fail "the shards are not on both hosts"
  [[ $(ask) == "$one_process" ]] || fail "two hosts under Slurm answer otherwise than one process"
  passed "srun: tokens and logprobs of one process"
  drain
  passed "srun: SIGTERM to rank 0's process: all end with 0"
  start "${with_slurm[@]}"
  stream_until_fault "$gone" on host-b kill -KILL "$(shards_on host-b)"
  ends_with_an_error "$gone" srun
else
  echo "[hosts] srun: skipped: slurm-wlm is not installed"
fi

# deploy/several_hosts.sh: the program is found by its name, and nothing belongs to root.
chmod 755 "$scratch"
install -d -m 755 "$scratch/bin" "$scratch/pod" && ln -s "$tandem" "$scratch/bin/tandem"
install -d -m 700 -o 10001 -g 10001 "$scratch/keys" "$scratch/pod/0" "$scratch/pod/1"
ssh-keygen -q -t ed25519 -N '' -f "$scratch/keys/id" && chown -R 10001:10001 "$scratch/keys"
{ cat /etc/passwd; echo "server:x:10001:10001::$scratch/pod:/bin/bash"; } >"$scratch/passwd"
as_pod() {  # host, index, arguments...
  local host="$1" index="$2"
  shift 2
  on "$host" unshare --mount bash -euc 'mount --bind "$1" /etc/passwd; shift; exec "$@"' pod "$scratch/passwd" \
    setpriv --reuid 10001 --regid 10001 --clear-groups env HOME="$scratch/pod/$index" TMPDIR="$scratch/pod/$index" \
    PATH="$scratch/bin:$PATH" LWS_LEADER_ADDRESS=shards-0.shards.default LWS_GROUP_SIZE=2 LWS_WORKER_INDEX="$index" \
    TANDEM_SSH_KEYS="$scratch/keys" TANDEM_DTYPE=fp32 "$PWD/deploy/several_hosts.sh" "$@"
}
start_pods() {
  as_pod host-b 1 "${what[@]}" >"$scratch/worker" 2>&1 &
  worker=$!
  as_pod host-a 0 "${what[@]}" >"$scratch/out" 2>"$scratch/err" &
  launcher=$!
  wait_until_ready
}
end_worker() {
  local code=0
  on host-b pkill -TERM -f several_hosts.sh
  wait "$worker" || code=$?
  [[ $code == 0 ]] || { cat "$scratch/worker" >&2; fail "the other host's script ended with $code"; }
}
start_pods
[[ $(shards_on host-a | wc -l) == 2 && $(shards_on host-b | wc -l) == 1 ]] || fail "the shards are not on both hosts"
[[ $(ask) == "$one_process" ]] || fail "deploy/several_hosts.sh answers otherwise than one process"
passed "deploy/several_hosts.sh: tokens and logprobs of one process"
on host-a pkill -TERM -f several_hosts.sh
wait_for_launcher 30
[[ $code == 0 ]] || { cat "$scratch/err" >&2; fail "deploy/several_hosts.sh ended with $code after SIGTERM"; }
nobody_is_left
end_worker
passed "deploy/several_hosts.sh: SIGTERM ends both hosts with 0"
start_pods
stream_until_fault "$gone" on host-b kill -KILL "$(shards_on host-b)"
ends_with_an_error "$gone" several_hosts.sh
end_worker

start "${several[@]}"
[[ $(ask) == "$one_process" ]] || fail "after a new start two hosts answer otherwise"
passed "started again: the same tokens"
stream_until_fault "$gone" on host-b ip link set eth0 down
# mpirun's daemons have lost each other too and may stay; they end with the hosts.
for _ in $(seq 200); do
  [[ -n $(shards_on host-a)$(shards_on host-b) ]] || break
  sleep 0.1
done
[[ -z $(shards_on host-a)$(shards_on host-b) ]] || fail "20 s after the link was cut and the stream has ended there are shards"
passed "the link is cut: no shard is left on either host after $(seconds_since "$fault_ms") s"
