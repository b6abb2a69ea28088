# What the scripts that fetch packages from PyPI share; sourced by them.

fetch_script="$(basename "$0")"

require_pip() {
  if ! python3 -m pip --version >/dev/null 2>&1; then
    echo "$fetch_script: needs python3 with pip (scripts/install_deps.sh installs both)" >&2
    exit 1
  fi
}

# Sets scratch, a folder inside FOLDER that goes at the end: on the file system of the destination, so that the final
# rename is atomic.
make_scratch() {  # FOLDER
  scratch="$(mktemp -d "$1/.fetch.XXXXXX")"
  trap 'rm -rf "$scratch"' EXIT
}

check_sha256() {  # file, expected, what
  local actual
  actual="$(sha256sum "$1" | cut -d' ' -f1)"
  if [[ $actual != "$2" ]]; then
    echo "$fetch_script: $3 has SHA-256 $actual, expected $2; nothing was kept" >&2
    exit 1
  fi
}
