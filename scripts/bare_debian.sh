# A bare Debian 12 in a folder, and commands in it. For scripts that try Tandem where nothing is installed; sourced by them
# with `set -euo pipefail` on. Needs root, the Debian mirror that this machine's apt is configured for, and systemd-nspawn.

bare_suite=bookworm

# apt's own answer: which mirrors serve this Debian. Lines: URI suite component.
bare_mirrors() {
  apt-get indextargets --format '$(REPO_URI) $(SUITE) $(CODENAME) $(COMPONENT) $(ORIGIN)' 'Created-By: Packages' |
    awk -v suite="$bare_suite" '$5 == "Debian" && $4 == "main" && ($3 == suite || $3 ~ "^" suite "-") {print $1, $3, $4}' | sort -u
}

# Makes one in a folder that does not exist yet. Prints one sentence and fails where it cannot.
make_bare_debian() {  # root
  local root="$1" tool mirror log
  [[ $(id -u) == 0 ]] || { echo "needs root, to make a bare Debian and to run it"; return 1; }
  for tool in debootstrap:debootstrap systemd-nspawn:systemd-container; do
    command -v "${tool%:*}" >/dev/null && continue
    { apt-get -qq update && apt-get -qq install -y --no-install-recommends "${tool#*:}"; } >/dev/null 2>&1 ||
      { echo "could not install ${tool#*:}"; return 1; }
  done
  [[ -n $(bare_mirrors) ]] || apt-get -qq update || true
  mirror="$(bare_mirrors | awk -v suite="$bare_suite" '$2 == suite {print $1; exit}')"
  [[ -n $mirror ]] || { echo "apt on this machine knows no mirror of Debian $bare_suite"; return 1; }
  log="$(mktemp)"
  debootstrap --variant=minbase "$bare_suite" "$root" "$mirror" >"$log" 2>&1 ||
    { tail -n 20 "$log"; rm -f "$log"; echo "debootstrap made no Debian $bare_suite"; return 1; }
  rm -f "$log"
  bare_mirrors | awk '{print "deb", $1, $2, $3}' >"$root/etc/apt/sources.list"
  # How this machine reaches mirrors.
  apt-config dump | grep -E '^Acquire::https?::Proxy ' >"$root/etc/apt/apt.conf.d/90proxy" || true
}

# Sets bare_nspawn: the start of a command line that runs what follows in the bare root, with this machine's network.
enter_bare_debian() {  # root
  bare_nspawn=(systemd-nspawn --quiet --directory="$1" --machine="tandem-bare-$$" --register=no --resolv-conf=replace-host
    --setenv=LANG=C.UTF-8 --setenv=DEBIAN_FRONTEND=noninteractive --rlimit=RLIMIT_MEMLOCK=infinity --console=pipe)
  # Without systemd on this machine nobody could make a unit for it.
  [[ -d /run/systemd/system ]] || bare_nspawn+=(--keep-unit)
}
