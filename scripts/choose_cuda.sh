#!/usr/bin/env bash
# Says with which CUDA toolkit scripts/quickstart.sh builds for the GPUs of this machine. Downloads nothing. On standard output either
#
#   cpu REASON          no GPU that the cuda backend has code for
#
# or two lines, the first of them one of these:
#
#   toolkit NVCC        a toolkit that is here, 12.8 or later, whose programs this driver runs
#   fetch               NVIDIA's from PyPI (scripts/fetch_cuda.sh)
#   capabilities 8.6 9.0
#
# Where it would be fetched and the driver is too old for that: exit code 1, and a sentence on standard error.
set -euo pipefail
case "${1:-}" in -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
system="${TANDEM_TEST_SYSTEM:-}"  # tests put a folder here in the place of /

note() { echo "choose_cuda.sh: $*" >&2; }

# How this system gets a driver of 580 or later.
driver_advice() {
  local ID="" ID_LIKE="" NAME="this system" VERSION_ID=""
  # shellcheck disable=SC1091
  [[ -r $system/etc/os-release ]] && . "$system/etc/os-release"
  local guide="https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"
  if [[ -e $system/usr/lib/wsl/lib ]]; then
    echo "under WSL it is the driver of Windows, to be updated there"
  elif [[ -e $system/.dockerenv || -e $system/run/.containerenv ]]; then
    echo "in this container it is the host's, to be updated there"
  else
    case " $ID $ID_LIKE " in
      *" ubuntu "*) echo "$NAME has it: sudo apt-get update && sudo apt-get install nvidia-driver-580-open, and a restart" ;;
      *" debian "*) echo "$NAME $VERSION_ID gets it from NVIDIA's repository ($guide): sudo apt-get install nvidia-open, and a restart" ;;
      *" fedora "* | *" rhel "*)
        if [[ $ID == fedora ]]; then
          echo "Fedora gets it from RPM Fusion (nonfree): sudo dnf install akmod-nvidia, and a restart"
        else
          echo "$NAME gets it from NVIDIA's repository ($guide): sudo dnf install nvidia-open, and a restart"
        fi
        ;;
      *" arch "*) echo "$NAME has it: sudo pacman -Syu nvidia-open, and a restart" ;;
      *) echo "$guide says how $NAME gets it" ;;
    esac
  fi
}

has_nvidia_hardware() {
  local device
  for device in "$system"/sys/bus/pci/devices/*/; do
    # A display controller (class 03) by NVIDIA.
    [[ -r $device/vendor && $(cat "$device/vendor") == 0x10de && $(cat "$device/class") == 0x03* ]] && return 0
  done
  return 1
}

# --- the GPUs ---
smi="$(command -v nvidia-smi || true)"
[[ -z $smi && -x $system/usr/lib/wsl/lib/nvidia-smi ]] && smi="$system/usr/lib/wsl/lib/nvidia-smi"
gpus=""
[[ -n $smi ]] && gpus="$("$smi" --query-gpu=driver_version,compute_cap,name --format=csv,noheader 2>/dev/null)" || gpus=""
driver="" named="" too_old="" capabilities=()
while IFS=, read -r of capability name; do
  capability="${capability// /}" name="${name# }"
  [[ $of =~ ^[0-9]+(\.[0-9]+)+$ && $capability =~ ^[0-9]+\.[0-9]$ ]] || continue
  if ((${capability/./} < 75)); then
    too_old="$name has compute capability $capability, and the cuda backend begins at 7.5"
    continue
  fi
  driver="$of"
  named="${named:-$name}"
  [[ " ${capabilities[*]} " == *" $capability "* ]] || capabilities+=("$capability")
done <<<"$gpus"
if [[ ${#capabilities[@]} == 0 ]]; then
  if [[ -n $too_old ]]; then
    echo "cpu $too_old"
  elif has_nvidia_hardware; then
    echo "cpu there is an NVIDIA GPU, but no driver that works; $(driver_advice)"
  else
    echo "cpu there is no NVIDIA GPU"
  fi
  exit 0
fi

# --- a toolkit that is here ---
driver_major="${driver%%.*}"
driver_for_cuda() { [[ $1 -ge 13 ]] && echo 580 || echo 525; }  # CUDA's major version
has_header() {  # of the toolkit with this nvcc
  local folder
  folder="$(dirname "$(dirname "$(readlink -f "$1")")")"
  compgen -G "$folder/include/cublasLt.h" >/dev/null || compgen -G "$folder/targets/*/include/cublasLt.h" >/dev/null ||
    [[ -e $system/usr/include/cublasLt.h ]]
}
is_usable() {  # nvcc
  local version major minor needed codes capability
  [[ -x $1 ]] || return 1
  version="$("$1" --version 2>/dev/null)" || return 1
  [[ $version =~ release\ ([0-9]+)\.([0-9]+) ]] || return 1
  major="${BASH_REMATCH[1]}" minor="${BASH_REMATCH[2]}"
  needed="$(driver_for_cuda "$major")"
  codes=" $("$1" --list-gpu-code 2>/dev/null | tr '\n' ' ') "
  if ((major < 12 || (major == 12 && minor < 8))); then
    note "$1 is of CUDA $major.$minor, 12.8 is the first that does"
  elif ((driver_major < needed)); then
    note "$1 is of CUDA $major.$minor, which needs driver $needed; this is $driver"
  elif ! has_header "$1"; then
    note "$1 has no cuBLASLt beside it"
  else
    for capability in "${capabilities[@]}"; do
      [[ $codes == *" sm_${capability/./} "* ]] && continue
      note "$1 is of CUDA $major.$minor, which knows no compute capability $capability"
      return 1
    done
    return 0
  fi
  return 1
}
configured=""
cache="$root/build/cuda-release/CMakeCache.txt"
[[ -n $system ]] && cache="$system/CMakeCache.txt"
[[ -r $cache ]] && configured="$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$cache")"
mapfile -t versioned < <(compgen -G "$system/usr/local/cuda-*/bin/nvcc" | sort -rV || true)
tried=" "
for nvcc in "$configured" "${CUDACXX:-}" "$(command -v nvcc || true)" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" \
  "${CUDA_PATH:+$CUDA_PATH/bin/nvcc}" "$system/usr/local/cuda/bin/nvcc" "${versioned[@]}" "$system/opt/cuda/bin/nvcc"; do
  [[ -n $nvcc && $tried != *" $(readlink -m "$nvcc") "* ]] || continue
  tried+="$(readlink -m "$nvcc") "
  is_usable "$nvcc" || continue
  echo "toolkit $nvcc"
  echo "capabilities ${capabilities[*]}"
  exit 0
done

# --- NVIDIA's from PyPI ---
if ((driver_major < $(driver_for_cuda 13))); then
  note "the driver of $named is $driver, and CUDA 13.0, which would be fetched, needs 580 or later: $(driver_advice);" \
    "with this driver an installed CUDA toolkit 12.8 or 12.9 would do, and --cpu goes without the GPU."
  exit 1
fi
echo fetch
echo "capabilities ${capabilities[*]}"
