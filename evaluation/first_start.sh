#!/usr/bin/env bash
# What a first start costs a newcomer: scripts/quickstart.sh in a bare Debian 12, for each revision in turn on the same machine.
# Let nothing else run meanwhile. Prints JSON: seconds of each part, and CPU seconds of all but the packages' installation,
# which are the compiler's and less than one of the first answer. Needs what scripts/bare_debian.sh names.
#
#   evaluation/first_start.sh REVISION...     5 to 10 minutes each
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/bare_debian.sh
[[ $# -gt 0 && $1 != -* ]] || { sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }

mkdir -p build
scratch="$(mktemp -d "$PWD/build/first_start.XXXXXX")"
trap 'rm -rf --one-file-system "$scratch"' EXIT
said="$(make_bare_debian "$scratch/bare")" || { echo "first_start.sh: $said" >&2; exit 1; }

for revision in "$@"; do
  commit="$(git rev-parse --verify --short "$revision^{commit}")"
  root="$scratch/$commit"
  cp -a "$scratch/bare" "$root"
  mkdir "$root/clone"
  git archive "$commit" | tar -x -C "$root/clone"
  enter_bare_debian "$root"
  # Which certificates the network needs and how pip is set up is this machine's affair.
  if [[ -e /etc/ssl/certs/ca-certificates.crt ]]; then
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/this_machine.crt"
    bare_nspawn+=(--setenv=PIP_CERT=/etc/this_machine.crt)
  fi
  [[ -e /etc/pip.conf ]] && cp /etc/pip.conf "$root/etc/pip.conf"
  "${bare_nspawn[@]}" --as-pid2 apt-get -qq update </dev/null >"$scratch/log" 2>&1 || { tail "$scratch/log" >&2; exit 1; }
  # The loop of a shell of its own: `times` tells the CPU seconds of what it waited for.
  "${bare_nspawn[@]}" --as-pid2 /bin/bash -c '
    cd /clone
    begin=$SECONDS
    scripts/install_deps.sh >&2 || exit 1
    echo "packages_s $((SECONDS - begin))"
    for start in first second; do
      bash -c "scripts/quickstart.sh --check >&2; code=\$?; times; exit \$code" || exit 1
    done' </dev/null >"$scratch/$commit.out" 2>"$scratch/$commit.err" || { tail -n 30 "$scratch/$commit.err" >&2; exit 1; }
  python3 - "$commit" "$scratch/$commit.out" "$scratch/$commit.err" <<'PYTHON'
import json
import re
import sys

commit, out, err = sys.argv[1], open(sys.argv[2]).read(), open(sys.argv[3]).read()
starts = []
for line in err.splitlines():
    part = re.match(r"\[quickstart\] (\S.*?)\s+([0-9.]+) s$", line)
    if not part:
        continue
    if part[1] == "packages":
        starts.append({})
    starts[-1][part[1]] = float(part[2])
# Two lines of `times` a start: the shell's own, then its children's.
seconds = [[int(m) * 60 + float(s) for m, s in re.findall(r"(\d+)m([\d.]+)s", line)] for line in out.splitlines() if "m" in line]
times = [pair for pair in seconds if len(pair) == 2]
for index, start in enumerate(starts):
    start["cpu_s"] = round(sum(times[2 * index + 1]), 1)
packages_s = int(re.search(r"packages_s (\d+)", out)[1])
print(json.dumps({"commit": commit, "packages_s": packages_s, "first_start": starts[0], "second_start": starts[1]}))
PYTHON
  rm -rf --one-file-system "$root"
done
