#!/usr/bin/env bash
# Builds the host backend for 64-bit Arm on a Debian 12 of another processor, for programs that qemu-user runs.
#
#   scripts/cross_aarch64.sh               fetches what is missing, configures and builds the preset host-aarch64
#   scripts/cross_aarch64.sh TARGET...     builds these targets only
#   scripts/cross_aarch64.sh --fetch       only fetches: compiler and qemu-user by apt-get, a sysroot to build/deps
#   scripts/cross_aarch64.sh --kernels     compiles the files with NEON kernels, nothing else: needs the compiler alone
#   scripts/cross_aarch64.sh --run CPU PROGRAM...   runs a program on a processor that qemu knows (max, cortex-a72)
#
# `ctest --test-dir build/host-aarch64` runs tests under qemu-user, on the processor of -DTANDEM_AARCH64_CPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

sysroot="$PWD/build/deps/sysroot-aarch64"
sysroot_version=debian-12.1
compiler=aarch64-linux-gnu-g++

install_tools() {  # packages...
  local package missing=() as_root=()
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [[ ${#missing[@]} == 0 ]] && return 0
  [[ $(id -u) == 0 ]] || as_root=(sudo)
  echo "cross_aarch64.sh: installing ${missing[*]}" >&2
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
  { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } >/dev/null </dev/null
}

# Debian's arm64 packages, unpacked beside this system's own: apt-get is asked with a state of its own, so nothing is
# installed and dpkg hears of no other architecture.
fetch_sysroot() {
  [[ -f $sysroot/VERSION && $(cat "$sysroot/VERSION") == "$sysroot_version" ]] && return 0
  local scratch root package link
  mkdir -p build/deps
  scratch="$(mktemp -d build/deps/.fetch.XXXXXX)"
  # shellcheck disable=SC2064
  trap "rm -rf '$PWD/$scratch'" EXIT
  root="$PWD/$scratch"
  mkdir -p "$root"/state/lists/partial "$root"/cache/archives/partial "$root"/sysroot/usr/lib
  : >"$root/status"
  local apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State=$root/state"
    -o "Dir::State::status=$root/status" -o "Dir::Cache=$root/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
  # What scripts/install_deps.sh installs for a build.
  local libraries=(libc6-dev libstdc++6 libgomp1 libdnnl-dev ocl-icd-opencl-dev libboost-dev nlohmann-json3-dev libcli11-dev
    libspdlog-dev libfmt-dev prometheus-cpp-dev libpcre2-dev libhwloc-dev libutf8proc-dev libssl-dev libzmq3-dev libgtest-dev
    libgmock-dev)
  echo "cross_aarch64.sh: fetching Debian's arm64 libraries (85 MB, 340 MB unpacked)" >&2
  "${apt[@]}" update
  "${apt[@]}" install --download-only -y --no-install-recommends "${libraries[@]}" >/dev/null
  # One folder, as on the system itself.
  ln -s usr/lib "$root/sysroot/lib"
  for package in "$root"/cache/archives/*.deb; do
    # What dependencies bring that a compiler does not read.
    [[ $(basename "$package") =~ ^(perl|libperl|autoconf|automake|m4_|tar_|dpkg|debianutils|catch2|icu|libicu-dev) ]] && continue
    dpkg-deb --fsys-tarfile "$package" |
      tar -x -C "$root/sysroot" --keep-directory-symlink --exclude='./usr/share/doc' --exclude='./usr/share/man'
  done
  # Links that name the root of the file system.
  while IFS= read -r -d '' link; do
    ln -sfnr "$root/sysroot$(readlink "$link")" "$link"
  done < <(find "$root/sysroot" -type l -lname '/*' -print0)
  echo "$sysroot_version" >"$root/sysroot/VERSION"
  rm -rf "$sysroot"
  mv "$root/sysroot" "$sysroot"
}

# The instruction sets that tandem_kernel_sources (cmake/tandem_targets.cmake) compiles these files for.
compile_kernels() {
  local file flags
  for file in src/*/*_neon*.cc src/ops/host/*/*_neon*.cc; do
    flags=()
    case "$file" in
      *_dot.cc) flags=(-march=armv8.2-a+dotprod) ;;
      *_bf16.cc) flags=(-march=armv8.2-a+dotprod+bf16+i8mm) ;;
    esac
    # Nothing of what optimization adds is looked for here, and it takes most of the time.
    "$compiler" -std=c++20 -DTANDEM_NEON "${flags[@]}" -Isrc -O0 -Wall -Wextra -Wpedantic -Wshadow -Werror \
      -Wno-missing-field-initializers -fsigned-char -c "$file" -o /dev/null || return 1
  done
}

case "${1:-}" in
  -h | --help)
    sed -n '2,10s/^# \{0,1\}//p' "$0"
    ;;
  --fetch)
    install_tools g++-aarch64-linux-gnu qemu-user
    fetch_sysroot
    ;;
  --kernels)
    if [[ $(uname -m) == aarch64 ]]; then
      compiler=g++
    else
      install_tools g++-aarch64-linux-gnu
    fi
    compile_kernels
    ;;
  --run)
    cpu="$2"
    shift 2
    exec qemu-aarch64 -cpu "$cpu" -L "$sysroot" "$@"
    ;;
  -*)
    echo "cross_aarch64.sh: unknown argument '$1'" >&2
    exit 2
    ;;
  *)
    install_tools g++-aarch64-linux-gnu qemu-user
    fetch_sysroot
    cmake --preset host-aarch64 >/dev/null
    cmake --build --preset host-aarch64 ${1:+--target "$@"} -- --quiet
    ;;
esac
