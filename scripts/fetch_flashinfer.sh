#!/usr/bin/env bash
# Fetches the headers of FlashInfer 0.7.2.post1 (Apache-2.0) that the cuda backend is compiled with, from PyPI: its
# own, and of those that it carries libcudacxx (CCCL) and CUTLASS. 59 MiB to download, 48 MiB on disk. Prints the
# folder as the last line of standard output. Does nothing if it is there.
#
#   scripts/fetch_flashinfer.sh            into build/deps/flashinfer-0.7.2.post1 of this checkout
#   scripts/fetch_flashinfer.sh FOLDER     into FOLDER (cmake -DTANDEM_FLASHINFER_DIR=FOLDER)
set -euo pipefail

version=0.7.2.post1
package=flashinfer-python==$version
wheel_sha256=bfdc18b9e1e4d8d0730fe4343dc0e284cd0c160086de80f99888bc4867922d49

case "${1:-}" in -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
. "$root/scripts/fetching.sh"
folder="${1:-$root/build/deps/flashinfer-$version}"
mkdir -p "$(dirname "$folder")"
folder="$(cd "$(dirname "$folder")" && pwd)/$(basename "$folder")"

# The folder gets its name only when it is complete.
if [[ -f $folder/VERSION && $(cat "$folder/VERSION") == "$version" ]]; then
  echo "$folder"
  exit 0
fi
if [[ -e $folder ]]; then
  echo "fetch_flashinfer.sh: $folder is there, but is not FlashInfer $version; remove it first" >&2
  exit 1
fi

require_pip
make_scratch "$(dirname "$folder")"

echo "fetch_flashinfer.sh: downloading $package (59 MiB)" >&2
python3 -m pip download --no-deps --no-cache-dir --only-binary=:all: --disable-pip-version-check \
  --dest "$scratch" "$package" >&2
wheels=("$scratch"/*.whl)
check_sha256 "${wheels[0]}" "$wheel_sha256" "the downloaded package"

echo "fetch_flashinfer.sh: unpacking the headers" >&2
python3 - "${wheels[0]}" "$scratch/headers" "$version" <<'PYTHON'
import pathlib, shutil, sys, zipfile

wheel, destination, version = sys.argv[1:]
destination = pathlib.Path(destination)
data = "flashinfer/data/"
licenses = f"flashinfer_python-{version}.dist-info/licenses/"
kept = {  # folder of the wheel: its name here
    data + "include/": "include/",
    data + "cccl/libcudacxx/include/": "libcudacxx/",
    data + "cutlass/include/": "cutlass/",
    data + "cutlass/tools/util/include/": "cutlass_util/",
    licenses: "licenses/",
}
counts = dict.fromkeys(kept, 0)
with zipfile.ZipFile(wheel) as archive:
    for entry in archive.infolist():
        for prefix, name in kept.items():
            if entry.filename.startswith(prefix) and not entry.is_dir():
                target = destination / name / entry.filename[len(prefix):]
                if destination.resolve() not in target.resolve().parents:
                    sys.exit(f"fetch_flashinfer.sh: {entry.filename} would leave the folder")
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as source, open(target, "wb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)
                counts[prefix] += 1
missing = [prefix for prefix, count in counts.items() if count == 0]
if missing:
    sys.exit(f"fetch_flashinfer.sh: the package has no {', '.join(missing)}")
(destination / "VERSION").write_text(version + "\n")
print(f"fetch_flashinfer.sh: {sum(counts.values())} files", file=sys.stderr)
PYTHON
mv "$scratch/headers" "$folder"
echo "fetch_flashinfer.sh: done" >&2
echo "$folder"
