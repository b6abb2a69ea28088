#!/usr/bin/env python3
"""Makes a bundle of SGLang that is small enough to be carried to a GPU machine (sm_90) without a package index.

    python3 evaluation/peers/sglang_bundle/make_bundle.py FOLDER --python PYTHON

FOLDER gets piece_NN and SHA256SUMS, 15 MB, for peer_unpack.sh. PYTHON is a Python 3.12 with pip, as the GPU machine has
it. Where it has torch, transformers, triton and ninja in the machine's versions and nvcc is there, kernels that SGLang
compiles while it starts are compiled now; without them the GPU machine does that, at the first start.

The work folder takes 3 GB; the whole takes some minutes. What is cut, and why: python_cuts.py, cut_libraries.py.
"""

import argparse
import hashlib
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import cut_libraries
import python_cuts

HERE = Path(__file__).resolve().parent
KERNELS = "jitcache"
# Zeros in place of code are long; the dictionary is as large as what repeats between libraries.
COMPRESSION = [{"id": lzma.FILTER_LZMA2, "preset": 6 | lzma.PRESET_EXTREME, "dict_size": 64 << 20}]
DATE = 1_767_225_600  # of all files: the same content makes the same bundle
STUB_FOLDERS = ("lib64/stubs", "lib/stubs")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="python3.12")
    parser.add_argument("--no-kernels", action="store_true", help="compile nothing")
    parser.add_argument("--piece-mib", type=int, default=24, help="the largest that a piece may be")
    parser.add_argument("--work", type=Path, help="folder to work in that stays; it is emptied first")
    return parser.parse_args()


def say(text, begin=time.monotonic()):
    print(f"{time.monotonic() - begin:6.0f} s  {text}", flush=True)


def install(python, site):
    version = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([python, "-c", version], capture_output=True, text=True, check=True)
    if done.stdout.split() != ["3", "12"]:
        raise SystemExit(f"{python} is Python {done.stdout.strip().replace(' ', '.')}, and the wheels are for 3.12")
    words = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    words += ["--no-compile", "--target", site, "-r", HERE / "requirements.txt"]
    subprocess.run(words, check=True)


def cut_compiled_code(site):
    for name, cut in (
        ("sgl_kernel/flash_ops.abi3.so", cut_libraries.cut_flash_attention),
        ("sgl_kernel/sm90/common_ops.abi3.so", cut_libraries.cut_common_kernels),
    ):
        kept_bytes = cut(site / name)
        if not kept_bytes:
            raise SystemExit(f"{name}: no device code for sm_90a is left; it is not what this script knows")
        say(f"{name}: {kept_bytes / 1e6:.1f} MB of device code kept")


def cuda_folder():
    compiler = shutil.which("nvcc")
    return Path(compiler).resolve().parents[1] if compiler else None


def compile_kernels(python, site, folder):
    """Says why where it cannot be done here."""
    cuda = cuda_folder()
    missing = "nvcc" if not cuda else None
    for package in ("torch", "transformers", "triton", "ninja"):
        done = subprocess.run([python, "-c", f"import {package}"], capture_output=True)
        missing = missing or (package if done.returncode else None)
    if missing:
        say(f"no kernels are compiled: there is no {missing}")
        return
    # Libraries name the driver's; CUDA's stub of it is enough to load them.
    stubs = [cuda / name / "libcuda.so" for name in STUB_FOLDERS if (cuda / name / "libcuda.so").exists()]
    if stubs:
        (folder / "libcuda.so.1").symlink_to(stubs[0])
    search = [str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    environment = os.environ | {
        "PYTHONPATH": str(site),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LD_LIBRARY_PATH": ":".join(search),
        "TVM_FFI_CACHE_DIR": str(site / KERNELS),
        "CUDA_HOME": str(cuda),
        "HF_HUB_OFFLINE": "1",
        "PATH": f"{Path(shutil.which(python)).parent}:{os.environ['PATH']}",
    }
    subprocess.run([python, HERE / "prebuild_kernels.py"], env=environment, check=True)
    python_cuts.remove_build_files(site / KERNELS)


class Pieces:
    """A file that is written as piece_00, piece_01, ..., with their sums."""

    def __init__(self, folder, most_bytes):
        self._folder = folder
        self._most_bytes = most_bytes
        self._file = None
        self._names = []

    def write(self, data):
        data = memoryview(data)
        while data:
            if self._file is None or self._file.tell() == self._most_bytes:
                self._open_next()
            room = self._most_bytes - self._file.tell()
            self._file.write(data[:room])
            data = data[room:]

    def _open_next(self):
        self._close()
        self._names.append(f"piece_{len(self._names):02}")
        self._file = (self._folder / self._names[-1]).open("wb")

    def _close(self):
        if self._file:
            self._file.close()

    def finish(self):
        """Paths of the pieces."""
        self._close()
        paths = [self._folder / name for name in self._names]
        sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths]
        (self._folder / "SHA256SUMS").write_text("".join(sums))
        return paths


def members(site):
    """Files in the order of the archive: compiled code first, which finds what it repeats in the dictionary."""
    first = ("sgl_kernel", KERNELS)
    paths = sorted(path.relative_to(site) for path in site.rglob("*") if path.is_file())
    return sorted(paths, key=lambda path: (path.parts[0] not in first, path.parts))


def pack(site, folder, most_bytes):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("piece_*"):
        old.unlink()
    pieces = Pieces(folder, most_bytes)
    compressor = lzma.LZMACompressor(format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC64, filters=COMPRESSION)

    class Compressed:
        def write(self, data):
            pieces.write(compressor.compress(data))
            return len(data)

    def plain(member):
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = DATE
        member.mode = 0o755 if member.mode & 0o100 else 0o644
        return member

    with tarfile.open(fileobj=Compressed(), mode="w|", bufsize=1 << 20) as archive:
        for path in members(site):
            archive.add(site / path, Path("site") / path, filter=plain)
    pieces.write(compressor.flush())
    return pieces.finish()


def make(args, work):
    site = work / "site"
    install(args.python, site)
    say("installed")
    python_cuts.remove_unused(site)
    python_cuts.edit(site)
    cut_compiled_code(site)
    if not args.no_kernels:
        compile_kernels(args.python, site, work)
    say("packing")
    paths = pack(site, args.folder, args.piece_mib << 20)
    say(f"{len(paths)} pieces, {sum(path.stat().st_size for path in paths) / 1e6:.1f} MB, in {args.folder}")


def main():
    args = parse_args()
    if args.work:
        shutil.rmtree(args.work, ignore_errors=True)
        args.work.mkdir(parents=True)
        make(args, args.work)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        make(args, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
