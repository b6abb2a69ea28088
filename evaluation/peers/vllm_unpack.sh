#!/usr/bin/env bash
# Unpacks vLLM where no package index can be reached, from pieces of a .tar.xz that were carried there.
#
#   evaluation/peers/vllm_unpack.sh FOLDER    FOLDER has, itself or in folders below, piece_* and SHA256SUMS
#
# The pieces together are one archive with a folder site/ (packages as in site-packages). It goes to $TMPDIR (or /tmp)
# as vllm_site, and vllm_env.sh beside it sets what a process that is to import it needs. Source that in vLLM's
# processes alone: it changes PYTHONPATH.
set -euo pipefail
[[ $# == 1 && -d $1 ]] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
target=${TMPDIR:-/tmp}
site=$target/vllm_site

mapfile -t sums < <(find "$1" -name SHA256SUMS | sort)
mapfile -t pieces < <(find "$1" -name 'piece_*' | sort)
[[ ${#pieces[@]} -gt 0 ]] || { echo "vllm_unpack.sh: there is no piece_* in $1" >&2; exit 1; }
for sum in "${sums[@]}"; do
  (cd "$(dirname "$sum")" && sha256sum -c --quiet --ignore-missing SHA256SUMS) ||
    { echo "vllm_unpack.sh: pieces beside $sum are damaged" >&2; exit 1; }
done

rm -rf "$site" && mkdir -p "$site"
# Python has its own xz.
cat "${pieces[@]}" | python3 -c '
import sys, tarfile
with tarfile.open(fileobj=sys.stdin.buffer, mode="r|xz") as archive:
    for member in archive:
        member.name = member.name.partition("/")[2]
        if member.islnk():
            member.linkname = member.linkname.partition("/")[2]
        if member.name:
            archive.extract(member, sys.argv[1], filter="tar")
' "$site"

{
  echo "export PYTHONPATH=$site\${PYTHONPATH:+:\$PYTHONPATH}"
  echo "export VLLM_CACHE_ROOT=$target/vllm_cache"
  # Its libraries name the driver's, which the loader itself must find.
  if ! ldconfig -p | grep -q 'libcuda\.so\.1'; then
    for folder in /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/lib/x86_64-linux-gnu; do
      [[ -e $folder/libcuda.so.1 ]] || continue
      echo "export LD_LIBRARY_PATH=$folder\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
      break
    done
  fi
} >"$target/vllm_env.sh"

python3 -m compileall -q -j 0 "$site" >/dev/null 2>&1 || true
# shellcheck disable=SC1091
(. "$target/vllm_env.sh" && python3 -c 'import vllm; print("vllm", vllm.__version__)')
echo "unpacked; its environment: $target/vllm_env.sh"
