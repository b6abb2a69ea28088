#!/usr/bin/env bash
# Packs programs with the libraries that they are linked with, to measure on a machine that has a GPU, its driver, CUDA's
# libraries (in CUDA_LIBRARIES; lib64 or lib of /usr/local/cuda without it) and Python, where nothing can be installed.
#
#   evaluation/bundle.sh ARCHIVE PROGRAM...     programs below the project's root; ARCHIVE ends in .tar.xz
#
# There, at the root of a copy of this project, python3 -m tarfile -e ARCHIVE . puts the programs where they are here, and
# their libraries into build/lib.
set -euo pipefail
[[ $# -ge 2 && $1 == *.tar.xz ]] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
archive=$(realpath "$1")
shift
cd "$(dirname "$0")/.."

# Of the machine itself, or of CUDA, which it has.
left_out='^(ld-linux|lib(c|m|dl|rt|pthread|resolv|util|gcc_s|stdc\+\+|cuda|cudart|cublas|cublasLt|nccl)\.so)'
staged=$(mktemp -d)
trap 'rm -rf "$staged"' EXIT
mkdir -p "$staged/build/lib"
for program in "$@"; do
  [[ $program != /* && -x $program ]] || { echo "bundle.sh: no program '$program' below the project's root" >&2; exit 1; }
  mkdir -p "$staged/$(dirname "$program")"
  strip -o "$staged/$program.linked" "$program"
  up=$(dirname "$program" | sed 's#[^/][^/]*#..#g')
  cat >"$staged/$program" <<END
#!/bin/sh
here=\$(dirname "\$(realpath "\$0")")
export LD_LIBRARY_PATH=\$here/$up/build/lib:\${CUDA_LIBRARIES:-/usr/local/cuda/lib64:/usr/local/cuda/lib}
exec "\$here/$(basename "$program").linked" "\$@"
END
  chmod +x "$staged/$program"
  while read -r name path; do
    [[ $path == /* ]] || { [[ $name =~ $left_out ]] || echo "bundle.sh: $program lacks $name" >&2; continue; }
    [[ $name =~ $left_out ]] || cp -nL "$path" "$staged/build/lib/$name"
  done < <(ldd "$program" | awk '$2 == "=>" { print $1, $3 }')
done
mkdir -p "$(dirname "$archive")"
# Wider windows than xz has by default: programs of one build have much in common.
tar -C "$staged" -cf - . | xz -T1 --lzma2=preset=4,dict=512MiB >"$archive"
echo "bundle.sh: $(du -h "$archive" | cut -f1) in $archive"
