#!/usr/bin/env bash
# Fetches the sources of xgrammar 0.2.8 (Apache-2.0) that src/grammar is built on, from PyPI, with the headers of picojson and
# dlpack that they carry. 2.6 MiB to download, 2 MiB on disk. Prints the folder as the last line of standard output.
# Does nothing if it is there. CMake calls it when it configures.
#
#   scripts/fetch_xgrammar.sh            into build/deps/xgrammar-0.2.8 of this checkout
#   scripts/fetch_xgrammar.sh FOLDER     into FOLDER (cmake -DTANDEM_XGRAMMAR_DIR=FOLDER)
set -euo pipefail

version=0.2.8
package=xgrammar==$version
sdist_sha256=8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80

case "${1:-}" in -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
. "$root/scripts/fetching.sh"
settle_folder "${1:-$root/build/deps/xgrammar-$version}" "$version" xgrammar

require_pip
make_scratch "$(dirname "$folder")"

# pip asks the build backend of a source package for its metadata. This one answers in the place of the package's own, which
# would be downloaded and would run before the hash is checked.
mkdir -p "$scratch/backend/scikit_build_core"
: >"$scratch/backend/scikit_build_core/__init__.py"
cat >"$scratch/backend/scikit_build_core/build.py" <<PYTHON
import pathlib


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = pathlib.Path(metadata_directory) / "xgrammar-$version.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: xgrammar\nVersion: $version\n")
    return folder.name
PYTHON

echo "fetch_xgrammar.sh: downloading $package (2.6 MiB)" >&2
PYTHONPATH="$scratch/backend" python3 -m pip download --no-deps --no-cache-dir --no-binary xgrammar --no-build-isolation \
  --disable-pip-version-check --dest "$scratch" "$package" >&2
sdists=("$scratch"/*.tar.gz)
check_sha256 "${sdists[0]}" "$sdist_sha256" "the downloaded package"

mkdir "$scratch/sources"
tar -xzf "${sdists[0]}" -C "$scratch/sources" --strip-components=1 --no-same-owner \
  "xgrammar-$version"/{LICENSE,NOTICE,include,cpp,3rdparty/picojson,3rdparty/dlpack/LICENSE,3rdparty/dlpack/include}
rm -rf "$scratch/sources/cpp/tvm_ffi"
echo "$version" >"$scratch/sources/VERSION"
# Two configurations at the same time: whoever comes second finds what it wants.
mv -T "$scratch/sources" "$folder" 2>/dev/null || is_version "$folder" "$version"
echo "fetch_xgrammar.sh: done" >&2
echo "$folder"
