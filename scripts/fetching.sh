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

# What is fetched into a folder has its version in a file there. The folder gets its name only when it is complete.
is_version() { [[ -f $1/VERSION && $(cat "$1/VERSION") == "$2" ]]; }  # folder, version

# Sets folder to its whole path; what is above it is made. Ends the script where that version is there, whose folder it
# prints, or anything else is.
settle_folder() {  # FOLDER, version, name
  mkdir -p "$(dirname "$1")"
  folder="$(cd "$(dirname "$1")" && pwd)/$(basename "$1")"
  if is_version "$folder" "$2"; then
    echo "$folder"
    exit 0
  fi
  if [[ -e $folder ]]; then
    echo "$fetch_script: $folder is there, but is not $3 $2; remove it first" >&2
    exit 1
  fi
}
