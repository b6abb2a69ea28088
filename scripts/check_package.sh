#!/usr/bin/env bash
# Makes the packages (scripts/package.sh) and tries them in a bare Debian 12 below build/, as a user would: installs the
# .deb with apt, serves the real model, purges; runs the archive and the quickstart; boots and has systemd start the
# service. Needs root, systemd-nspawn and the Debian mirror that this machine's apt is configured for; fails without.
#
#   scripts/check_package.sh            two to five minutes beside the build
#   scripts/check_package.sh --no-build takes the packages that are in build/packages
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/bare_debian.sh

make_packages=1
case "${1:-}" in
  "") ;;
  --no-build) make_packages=0 ;;
  -h | --help) sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) echo "check_package.sh: unknown argument '$1' (see --help)" >&2; exit 2 ;;
esac
fail() { echo "check_package.sh: $*" >&2; exit 1; }
begin=$SECONDS
passed() { printf '[package] %-58s %4d s\n' "$*" $((SECONDS - begin)); begin=$SECONDS; }

packages="$PWD/build/packages"
[[ $(id -u) == 0 ]] || fail "needs root, to make a bare Debian and to run it; nothing was checked"

if [[ $make_packages == 1 ]]; then
  scripts/package.sh
  passed "packages made"
fi
(cd "$packages" && sha256sum --quiet -c SHA256SUMS) || fail "SHA256SUMS does not fit the files beside it"
deb=("$packages"/*.deb)
archive=("$packages"/*.tar.gz)
[[ ${#deb[@]} == 1 && ${#archive[@]} == 1 ]] || fail "build/packages does not hold one .deb and one .tar.gz"
passed "SHA256SUMS"
model="$(scripts/fetch_model.sh | tail -n 1)"

scratch="$(mktemp -d "$PWD/build/check_package.XXXXXX")"
root="$scratch/root"
container=""  # a systemd-nspawn in the background: all in it ends with it
clean_up() {
  local code=$?
  trap - EXIT
  if [[ -n $container ]]; then
    pkill -KILL -P "$container" 2>/dev/null || true  # its first process; all others in it end with that one
    wait "$container" 2>/dev/null || true
  fi
  rm -rf --one-file-system "$scratch"
  exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

said="$(make_bare_debian "$root")" || fail "$said; nothing was checked"
passed "bare Debian $bare_suite"

enter_bare_debian "$root"
inside() { "${bare_nspawn[@]}" --as-pid2 "$@" </dev/null 2>"$scratch/nspawn.log" || { tail -n 30 "$scratch/nspawn.log" >&2; return 1; }; }
quietly() { "$@" >"$scratch/log" 2>&1 || { tail -n 30 "$scratch/log" >&2; return 1; }; }
install_inside() { quietly inside apt-get -qq install -y --no-install-recommends "$@"; }

# Asks a server for its health and a completion.
ask() {  # URL, what serves, its key if it has one
  [[ $(curl -sS "$1/health") == '{"status":"ok"}' ]] || fail "$2: /health is not ok"
  curl -sS "$1/v1/completions" -H 'Content-Type: application/json' -H "x-api-key: ${3:-}" \
    -d '{"prompt": "The capital of France is", "max_tokens": 5, "temperature": 0}' >"$scratch/answer"
  python3 -c 'import json, sys; sys.exit("Paris" not in json.load(sys.stdin)["choices"][0]["text"])' <"$scratch/answer" ||
    { cat "$scratch/answer" >&2; fail "$2 does not know the capital of France"; }
}
# As an ordinary user, until it has answered; SIGTERM then ends it with exit code 0.
serve_and_ask() {  # program as seen inside, what serves
  local url="" code
  "${bare_nspawn[@]}" --user=nobody --kill-signal=SIGTERM "$1" serve /model.gguf --port 0 --strategy gpu-only \
    --gpu-kv-cache 4096tok </dev/null >"$scratch/ready" 2>"$scratch/server.log" &
  container=$!
  for _ in {1..600}; do
    url="$(sed -n 's/^tandem: .* is ready at //p' "$scratch/ready" | tr -d '\r')"
    [[ -z $url ]] && kill -0 "$container" 2>/dev/null || break
    sleep 0.1
  done
  [[ -n $url ]] || { cat "$scratch/server.log" >&2; fail "$2 did not get ready within a minute"; }
  ask "$url" "$2"
  kill -TERM "$container"
  wait "$container" && code=0 || code=$?
  container=""
  [[ $code == 0 ]] || { cat "$scratch/server.log" >&2; fail "$2 ended with exit code $code after SIGTERM"; }
}

cp "$model" "$root/model.gguf"
cp "${deb[@]}" "$root/tandem.deb"
mkdir "$root/archive"
tar -xzf "${archive[0]}" -C "$root/archive" --strip-components=1 --no-same-owner
chmod 644 "$root/model.gguf"
quietly inside apt-get -qq update || fail "apt inside the bare root reaches no mirror"

# All that a package may leave behind; apt's and dpkg's own books are not looked at, nor what programs that change
# accounts keep of how they were (etc/gshadow-).
list_files() {
  (cd "$root" && find etc usr var root -xdev \( -path 'var/cache/apt' -o -path 'var/lib/apt' -o -path 'var/lib/dpkg' -o \
    -path 'var/log' -o -path 'var/cache/ldconfig' -o -path 'var/cache/debconf' -o -path 'etc/*-' \) -prune -o -print | sort)
}
list_files >"$scratch/before"
[[ $(dpkg-deb --info "${deb[0]}" conffiles) == $'/etc/tandem/api-keys\n/etc/tandem/tandem.env' ]] ||
  fail "tandem.env and api-keys are no conffiles of the .deb"
install_inside /tandem.deb || fail "apt does not install the .deb"
[[ $(inside /bin/sh -c 'command -v tandem') == /usr/bin/tandem ]] || fail "the .deb brought no /usr/bin/tandem"
for file in tandem.env api-keys; do
  [[ $(stat -c '%U %a' "$root/etc/tandem/$file") == "root 600" ]] || fail "others may read the service's $file"
done
passed "installed with apt"

inside tandem --version >"$scratch/version" || fail "tandem --version fails where only the .deb is installed"
sed 's/^/[package]     /' "$scratch/version"
[[ $(dpkg-deb -f "${deb[0]}" Version) == "$(sed -n '1s/^tandem //p' "$scratch/version")"* ]] ||
  fail "the program and the .deb differ in their version"
readelf -S "$root/usr/bin/tandem" | grep -q '\.debug_info' && fail "the program is not stripped"
page="$(gzip -dc "$root/usr/share/man/man1/tandem.1.gz")" || fail "the .deb brought no man page"
for command in serve generate "bench offline" "bench online" "bench compare" profile plan doctor; do
  grep -qF ".SS \"tandem $command\"" <<<"$page" || fail "the man page says nothing of tandem $command"
done
serve_and_ask tandem "the .deb's program"
passed "version, man page, health, a completion"

# What the service leaves, and an administrator who enabled it.
mkdir -p "$root/var/cache/private/tandem" "$root/var/lib/private/tandem"
ln -s private/tandem "$root/var/cache/tandem"
ln -s private/tandem "$root/var/lib/tandem"
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -s /lib/systemd/system/tandem.service "$root/etc/systemd/system/multi-user.target.wants/tandem.service"
quietly inside apt-get -qq purge -y --autoremove tandem || fail "apt does not purge the package"
(cd "$root" && rmdir --ignore-fail-on-non-empty var/cache/private var/lib/private etc/systemd/system/multi-user.target.wants)
list_files | diff "$scratch/before" - >"$scratch/left" || { cat "$scratch/left" >&2; fail "a purge does not leave the files as they were"; }
passed "purged, nothing remains"

# The archive, with the packages that its own README names.
read -ra libraries < <(sed -n 's/^ *apt-get install //p' "$root/archive/README")
install_inside "${libraries[@]}" || fail "apt does not install what the archive's README names"
serve_and_ask /archive/bin/tandem "the archive's program"
passed "archive: health, a completion"

# A clone on a machine with the package: no compiler, no build.
install_inside /tandem.deb || fail "apt does not install the .deb again"
mkdir -p "$root/clone/models"
git ls-files -z scripts | xargs -0 cp --parents -t "$root/clone"
cp "$model" "$root/clone/models/"
quietly inside /clone/scripts/quickstart.sh --check || fail "the quickstart fails with an installed tandem"
grep -q "quickstart.*/usr/bin/tandem" "$scratch/nspawn.log" || { cat "$scratch/nspawn.log" >&2; fail "the quickstart does not say that it uses /usr/bin/tandem"; }
inside /bin/sh -c 'command -v g++ || command -v cmake' >/dev/null 2>&1 && fail "the quickstart installed a compiler though tandem is installed"
[[ ! -e $root/clone/build ]] || fail "the quickstart built though tandem is installed"
passed "quickstart with the installed program"

# The service, under systemd.
install_inside systemd dbus man-db || fail "apt does not install systemd"
quietly inside systemd-analyze verify tandem.service || fail "systemd-analyze finds fault with tandem.service"
passed "unit verified"
port="$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
sed -i 's/^#\(TANDEM_API_KEY_FILE=\)/\1/' "$root/etc/tandem/tandem.env"
printf '%s\n' TANDEM_MODEL=/model.gguf "TANDEM_PORT=$port" TANDEM_STRATEGY=gpu-only TANDEM_GPU_KV_CACHE=4096tok \
  >>"$root/etc/tandem/tandem.env"
key="$(python3 -c 'import secrets; print(secrets.token_hex(16))')"
echo "check $key" >>"$root/etc/tandem/api-keys"
quietly inside systemctl enable tandem || fail "systemctl does not enable the service"
"${bare_nspawn[@]}" --boot </dev/null >"$scratch/boot.log" 2>&1 &
container=$!
for _ in {1..600}; do
  kill -0 "$container" 2>/dev/null || break
  curl -sf -o "$scratch/health" "http://127.0.0.1:$port/health" && break
  sleep 0.1
done
if [[ ! -e $scratch/health ]]; then
  cat "$scratch/boot.log" >&2
  journalctl --directory="$root/var/log/journal" --no-pager -u tandem 2>/dev/null | tail -n 20 >&2 || true
  fail "systemd does not start tandem.service"
fi
ask "http://127.0.0.1:$port" "the service" "$key"
[[ $(curl -sS -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/v1/models") == 401 ]] || fail "the service asks for no key"
service="$(pgrep -x tandem --ns "$(pgrep -P "$container" | head -n 1)" --nslist pid | head -n 1)"
[[ $(stat -c %u "/proc/$service") != 0 ]] || fail "the service runs as root"
if bash -c 'ulimit -l unlimited' 2>/dev/null; then
  grep -q '^Max locked memory  *unlimited  *unlimited' "/proc/$service/limits" || fail "the service may not lock memory without limit"
else
  echo "[package]     not checked: limits of locked memory, which root of this machine may not raise"
fi
kill -TERM "$container"  # an orderly shutdown
wait "$container" || true
container=""
passed "systemd starts the service, it answers"
printf '[package] all checks passed in %d s\n' "$SECONDS"
