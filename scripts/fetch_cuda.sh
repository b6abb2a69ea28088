#!/usr/bin/env bash
# Fetches what the cuda backend needs of NVIDIA's CUDA toolkit 13.0 from PyPI: nvcc, the runtime, CCCL, NVTX and cuBLASLt, under NVIDIA's
# licence. 503 MiB to download, 730 MiB on disk. Prints the folder as the last line of standard output; cmake takes
# -DCMAKE_CUDA_COMPILER=FOLDER/bin/nvcc. Does nothing if it is there. Programs that it builds need a driver of 580 or later.
#
#   scripts/fetch_cuda.sh            into build/deps/cuda-13.0.88 of this checkout
#   scripts/fetch_cuda.sh FOLDER     into FOLDER
#   scripts/fetch_cuda.sh --missing  says what would be downloaded, nothing if it is there
set -euo pipefail

version=13.0.88
# name, version, MiB to download, SHA-256 of the wheel
packages=(
  "nvidia-cuda-nvcc 13.0.88 36 56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03"
  "nvidia-cuda-crt 13.0.88 1 2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4"
  "nvidia-nvvm 13.0.88 59 c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0"
  "nvidia-cuda-runtime 13.0.96 3 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548"
  "nvidia-cuda-cccl 13.0.85 3 e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649"
  "nvidia-nvtx 13.0.85 1 4936d1d6780fbe68db454f5e72a42ff64d1fd6397df9f363ae786930fd5c1cd4"
  "nvidia-cublas 13.1.0.3 404 ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171"
)
# Large, and only for who calls them.
without=(nvidia/cu13/lib/libcublas.so.13 nvidia/cu13/lib/libnvblas.so.13 nvidia/cu13/lib/libnvvm.so.4)

case "${1:-}" in -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
. "$root/scripts/fetching.sh"
default_folder="$root/build/deps/cuda-$version"
if [[ ${1:-} == --missing ]]; then
  is_version "$default_folder" "$version" || echo "CUDA $version: 503 MiB, 730 MiB on disk"
  exit 0
fi
settle_folder "${1:-$default_folder}" "$version" CUDA
if [[ $(uname -m) != x86_64 ]]; then
  echo "fetch_cuda.sh: fetches programs for x86-64, this is $(uname -m); install NVIDIA's CUDA toolkit 12.8 or later" >&2
  exit 1
fi

require_pip
make_scratch "$(dirname "$folder")"
toolkit="$scratch/toolkit"
for package in "${packages[@]}"; do
  read -r name of mib sha256 <<<"$package"
  echo "fetch_cuda.sh: downloading $name==$of ($mib MiB)" >&2
  python3 -m pip download --no-deps --no-cache-dir --only-binary=:all: --disable-pip-version-check \
    --dest "$scratch/$name" "$name==$of" >&2
  wheels=("$scratch/$name"/*.whl)
  check_sha256 "${wheels[0]}" "$sha256" "the downloaded package $name"
  info="${name//-/_}-$of.dist-info/licenses/"
  python3 "$root/scripts/unpack_wheel.py" "${wheels[0]}" "$toolkit" nvidia/cu13/= "$info=licenses/$name" \
    --without "${without[@]}" >"$scratch/count"
  rm -r "${scratch:?}/$name"
done
# The names that a linker and CMake look for.
ln -s lib "$toolkit/lib64"
for library in libcublasLt libcudart; do ln -s "$library.so.13" "$toolkit/lib/$library.so"; done
echo "$version" >"$toolkit/VERSION"
mv "$toolkit" "$folder"
echo "fetch_cuda.sh: done" >&2
echo "$folder"
