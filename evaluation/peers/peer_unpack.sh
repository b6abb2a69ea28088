#!/usr/bin/env bash
# Unpacks vLLM or SGLang where no package index can be reached, from pieces of a .tar.xz that were carried there.
#
#   evaluation/peers/peer_unpack.sh PEER FOLDER    PEER is vllm or sglang; FOLDER has, itself or in folders below,
#                                                  piece_* and SHA256SUMS, of this peer alone
#
# The pieces together are one archive with a folder site/ (packages as in site-packages). It goes to $TMPDIR (or /tmp)
# as PEER_site, and PEER_env.sh beside it sets what a process that is to import it needs. Source that in the peer's
# processes alone: it changes PYTHONPATH.
set -euo pipefail
[[ $# == 2 && ($1 == vllm || $1 == sglang) && -d $2 ]] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
peer=$1
target=${TMPDIR:-/tmp}
site=$target/${peer}_site
environment=$target/${peer}_env.sh

mapfile -t sums < <(find "$2" -name SHA256SUMS | sort)
mapfile -t pieces < <(find "$2" -name 'piece_*' | sort)
[[ ${#pieces[@]} -gt 0 ]] || { echo "peer_unpack.sh: there is no piece_* in $2" >&2; exit 1; }
for sum in "${sums[@]}"; do
  (cd "$(dirname "$sum")" && sha256sum -c --quiet --ignore-missing SHA256SUMS) ||
    { echo "peer_unpack.sh: pieces beside $sum are damaged" >&2; exit 1; }
done

rm -rf "$site" && mkdir -p "$site"
# Python has its own xz; mode "r|xz" would hold and copy what a block of zeros becomes, which is a thousand times as long.
cat "${pieces[@]}" | python3 -c '
import lzma, sys, tarfile
with lzma.open(sys.stdin.buffer) as unpacked, tarfile.open(fileobj=unpacked, mode="r|") as archive:
    for member in archive:
        member.name = member.name.partition("/")[2]
        if member.islnk():
            member.linkname = member.linkname.partition("/")[2]
        if member.name:
            archive.extract(member, sys.argv[1], filter="tar")
' "$site"
[[ -d $site/$peer ]] || { echo "peer_unpack.sh: the pieces in $2 are not of $peer" >&2; exit 1; }

{
  echo "export PYTHONPATH=$site\${PYTHONPATH:+:\$PYTHONPATH}"
  if [[ $peer == vllm ]]; then
    echo "export VLLM_CACHE_ROOT=$target/vllm_cache"
  else
    # Kernels that were compiled beforehand; what is missing is compiled, for which it asks where nvcc is.
    echo "export TVM_FFI_CACHE_DIR=$site/jitcache SGLANG_CACHE_DIR=$target/sglang_cache"
    echo "export TRITON_CACHE_DIR=$target/sglang_triton"
    for folder in "${CUDA_HOME:-}" /usr/local/cuda; do
      [[ -x $folder/bin/nvcc ]] || continue
      echo "export CUDA_HOME=$folder PATH=$folder/bin:\$PATH"
      break
    done
  fi
  # Its libraries name the driver's, which the loader itself must find.
  if ! ldconfig -p | grep -q 'libcuda\.so\.1'; then
    for folder in /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/lib/x86_64-linux-gnu; do
      [[ -e $folder/libcuda.so.1 ]] || continue
      echo "export LD_LIBRARY_PATH=$folder\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
      break
    done
  fi
  # SGLang asks it for the memory of the GPU.
  if ! command -v nvidia-smi >/dev/null && [[ -x /usr/local/nvidia/bin/nvidia-smi ]]; then
    echo "export PATH=/usr/local/nvidia/bin:\$PATH"
  fi
} >"$environment"

python3 -m compileall -q -j 0 "$site" >/dev/null 2>&1 || true
# shellcheck disable=SC1090
(. "$environment" && python3 -c 'import importlib, sys; print(sys.argv[1], importlib.import_module(sys.argv[1]).__version__)' "$peer")
echo "unpacked; its environment: $environment"
