#!/usr/bin/env bash
# Installs what a build needs on Debian or Ubuntu, through apt-get: only what is missing.
#
#   scripts/install_deps.sh           compiler, CMake, libraries, Python
#   scripts/install_deps.sh --tests   also what scripts/lint.sh and scripts/test.sh need
#   scripts/install_deps.sh --package also what scripts/package.sh needs
#   scripts/install_deps.sh --run     only what fetches a model and asks a server, for who has tandem installed
#   scripts/install_deps.sh --list    prints what is missing and installs nothing
set -euo pipefail

# libdnnl-dev's CMake package looks for OpenCL, which it does not depend on.
build_packages=(
  build-essential cmake ninja-build pkg-config
  libdnnl-dev ocl-icd-opencl-dev libboost-dev nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev prometheus-cpp-dev
  libopenmpi-dev libpcre2-dev libhwloc-dev libutf8proc-dev libssl-dev libzmq3-dev
  libgtest-dev libgmock-dev libbenchmark-dev
)
run_packages=(python3 python3-pip curl ca-certificates)
test_packages=(
  python3-venv clang-format clang-tidy ccache chromium openssl haproxy openmpi-bin json-schema-test-suite
)

# For dpkg-shlibdeps, by which CPack finds what the program depends on.
packaging_packages=(dpkg-dev file)

usage() { sed -n '2,8s/^# \{0,1\}//p' "$0"; }

packages=("${run_packages[@]}" "${build_packages[@]}")
list_only=0
for argument in "$@"; do
  case "$argument" in
    --tests) packages+=("${test_packages[@]}") ;;
    --package) packages+=("${packaging_packages[@]}") ;;
    --run) packages=("${run_packages[@]}") ;;
    --list) list_only=1 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "install_deps.sh: unknown argument '$argument'" >&2; usage >&2; exit 2 ;;
  esac
done

[[ $list_only == 0 && ${TANDEM_SKIP_DEPS:-0} == 1 ]] && exit 0
if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  {
    echo "install_deps.sh: this system has no apt-get. Install the counterparts of these Debian packages yourself,"
    echo "then run the script that called this one with TANDEM_SKIP_DEPS=1:"
    printf '  %s\n' "${packages[@]}"
  } >&2
  exit 1
fi

# One query for all: dpkg-query prints what it knows and fails on the rest.
installed="$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null || true)"
missing=()
for package in "${packages[@]}"; do
  grep -qxF "installed $package" <<<"$installed" || missing+=("$package")
done

if [[ $list_only == 1 ]]; then
  [[ ${#missing[@]} == 0 ]] || printf '%s\n' "${missing[@]}"
  exit 0
fi
[[ ${#missing[@]} == 0 ]] && exit 0

as_root=()
if [[ $(id -u) != 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "install_deps.sh: not root and no sudo; ask an administrator to run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "install_deps.sh: installing ${missing[*]}" >&2
# A script must not stop at a question. `env` hands the setting through sudo.
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
if ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } </dev/null >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  echo "install_deps.sh: apt-get failed, see above" >&2
  exit 1
fi
