#!/usr/bin/env bash
# Fetches the headers of FlashInfer 0.7.2.post1 (Apache-2.0) that the cuda backend is compiled with, from PyPI: its
# own, and of those that it carries libcudacxx (CCCL) and CUTLASS. 59 MiB to download, 48 MiB on disk. Prints the
# folder as the last line of standard output. Does nothing if it is there.
#
#   scripts/fetch_flashinfer.sh            into build/deps/flashinfer-0.7.2.post1 of this checkout
#   scripts/fetch_flashinfer.sh FOLDER     into FOLDER (cmake -DTANDEM_FLASHINFER_DIR=FOLDER)
#   scripts/fetch_flashinfer.sh --missing  says what would be downloaded, nothing if it is there
set -euo pipefail

version=0.7.2.post1
package=flashinfer-python==$version
wheel_sha256=bfdc18b9e1e4d8d0730fe4343dc0e284cd0c160086de80f99888bc4867922d49

case "${1:-}" in -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
. "$root/scripts/fetching.sh"
default_folder="$root/build/deps/flashinfer-$version"
if [[ ${1:-} == --missing ]]; then
  is_version "$default_folder" "$version" || echo "headers of FlashInfer $version: 59 MiB, 48 MiB on disk"
  exit 0
fi
settle_folder "${1:-$default_folder}" "$version" FlashInfer

require_pip
make_scratch "$(dirname "$folder")"

echo "fetch_flashinfer.sh: downloading $package (59 MiB)" >&2
python3 -m pip download --no-deps --no-cache-dir --only-binary=:all: --disable-pip-version-check \
  --dest "$scratch" "$package" >&2
wheels=("$scratch"/*.whl)
check_sha256 "${wheels[0]}" "$wheel_sha256" "the downloaded package"

echo "fetch_flashinfer.sh: unpacking the headers" >&2
data=flashinfer/data
count="$(python3 "$root/scripts/unpack_wheel.py" "${wheels[0]}" "$scratch/headers" "$data/include/=include" \
  "$data/cccl/libcudacxx/include/=libcudacxx" "$data/cutlass/include/=cutlass" \
  "$data/cutlass/tools/util/include/=cutlass_util" "flashinfer_python-$version.dist-info/licenses/=licenses")"
echo "$version" >"$scratch/headers/VERSION"
echo "fetch_flashinfer.sh: $count files" >&2
mv "$scratch/headers" "$folder"
echo "fetch_flashinfer.sh: done" >&2
echo "$folder"
