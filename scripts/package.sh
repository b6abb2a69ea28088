#!/usr/bin/env bash
# Makes packages of this checkout in build/packages: a .deb, a .tar.gz that runs from where it is unpacked, SHA256SUMS.
# The build is that of host-release; the program chooses among instruction sets when it starts.
#
#   scripts/package.sh            of the tree as it is: 0.1.0~git20260131.1a2b3c4d5e6f
#   scripts/package.sh --release  0.1.0: the tree is clean, CHANGELOG.md has that version, the commit gets the tag v0.1.0
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

release=0
case "${1:-}" in
  "") ;;
  --release) release=1 ;;
  -h | --help) sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) echo "package.sh: unknown argument '$1' (see --help)" >&2; exit 2 ;;
esac
fail() { echo "package.sh: $*" >&2; exit 1; }

build=build/host-release
packages="$PWD/build/packages"
scripts/install_deps.sh --package

if [[ $release == 1 ]]; then
  version="$(sed -n 's/^project(tandem VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)"
  [[ -z $(git status --porcelain) ]] || fail "a release is made of a clean tree; git status names what is not committed"
  grep -q "^## \[$version\] - [0-9-]*$" CHANGELOG.md || fail "CHANGELOG.md has no line '## [$version] - DATE'"
  if tagged="$(git rev-parse -q --verify "refs/tags/v$version^{commit}")"; then
    [[ $tagged == "$(git rev-parse HEAD)" ]] || fail "the tag v$version is on another commit; is the version in CMakeLists.txt the next one?"
  else
    git tag -a -m "Tandem $version" "v$version"
  fi
fi

export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
cmake --preset host-release >/dev/null
cmake --build --preset host-release --target tandem tandem_man_page -- --quiet

# The program knows what it was built from; the packages say the same.
printed="$("$build/tandem" --version)"
version="$(sed -n '1s/^tandem //p' <<<"$printed")"
commit="$(sed -n 's/^commit: //p' <<<"$printed")"
day="$(git show -s --format=%cs HEAD 2>/dev/null | tr -d -)" || day=""
# Below: what is on the way to a version (its tag is to come) sorts before it, what came after the tag behind it.
case "$commit" in
  "v$version") ;;
  "v$version"-*) version+="+git$day.${commit#"v$version"-}" ;;
  *) version+="~git$day.$commit" ;;
esac
version="${version//-/.}"
[[ $release == 0 || $commit == "v$version" ]] || fail "the program says commit $commit, not v$version"

# The same tree gives the same bytes.
SOURCE_DATE_EPOCH="$(git show -s --format=%ct HEAD 2>/dev/null || date +%s)"
export SOURCE_DATE_EPOCH
umask 022
rm -rf "$packages"
mkdir -p "$packages"
pack() {  # kind, further settings...
  local kind="$1"
  shift
  cpack --config "$build/CPackConfig.cmake" -G "$kind" -B "$packages" -D "CPACK_PACKAGE_VERSION=$version" \
    -D "CPACK_PACKAGE_FILE_NAME=tandem-$version-linux-$(uname -m)" "$@" >"$packages/$kind.log" 2>&1 ||
    { cat "$packages/$kind.log" >&2; fail "CPack made no $kind"; }
  rm -rf "$packages/_CPack_Packages" "$packages/$kind.log"
}
pack DEB
deb=("$packages"/*.deb)
# Of the .deb, for who unpacks the archive: names without versions.
depends="$(dpkg-deb -f "${deb[0]}" Depends | sed 's/([^)]*)//g; s/,/ /g; s/  */ /g; s/ *$//')"
pack TGZ -D "CPACK_TANDEM_DEPENDS=$depends"

(cd "$packages" && sha256sum -- *.deb *.tar.gz >SHA256SUMS)
echo "$packages:"
(cd "$packages" && du -h --apparent-size -- *)
