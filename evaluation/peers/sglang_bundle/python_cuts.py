"""Cuts and edits of SGLang's Python: what the GPU machine has no package for, and what is never imported there."""

import ast
import shutil
from pathlib import Path

HERE = Path(__file__).resolve().parent
START_MODULE = "sglang_bundle_start"

# Imports at the head of modules that are loaded, of packages that neither the machine nor the bundle has. What they are
# for (notebooks, speech, attention of images, another sampler) is not used.
OPTIONAL_IMPORTS = (
    ("sglang/utils.py", "IPython"),
    ("sglang/srt/entrypoints/openai/realtime/session.py", "soundfile"),
    ("sglang/srt/entrypoints/openai/streaming_asr.py", "soundfile"),
    ("sglang/srt/layers/attention/vision.py", "flashinfer"),
    ("sglang/srt/layers/sampler.py", "flashinfer"),
)
# Patterns below the folder of packages.
UNUSED = (
    # Programs and data of the packages, which no import needs.
    "bin",
    "share",
    "tools",
    "**/__pycache__",
    # Compiled code for other GPUs, and for kinds of attention that the models here do not have.
    "sgl_kernel/sm100",
    "sgl_kernel/flashmla_ops.abi3.so",
    "sgl_kernel/infllm_ops.*.so",
    # Images and video, a front end in gRPC.
    "sglang/multimodal_gen",
    "sglang/srt/multimodal/_core*.so",
    "sglang/srt/grpc/_core*.so",
    # Tests and benchmarks.
    "sglang/test",
    "sglang/benchmark",
    "sglang/auto_benchmark_lib.py",
    "sglang/jit_kernel/tests",
    "sglang/jit_kernel/benchmark",
    "sglang/srt/hardware_backend/*/tests",
    "tvm_ffi/testing*",
    "tvm_ffi/**/tests",
    # Sources of what is compiled already, and command lines.
    "tvm_ffi/src",
    "tvm_ffi/3rdparty/libbacktrace",
    "gguf/scripts",
)
# Of 200 models: dense Llama and Qwen, and what those and the registry import.
MODELS = (
    "__init__.py",
    "deepseek_common",
    "llama*.py",
    "mistral.py",
    "qwen2.py",
    "qwen2_moe.py",
    "qwen3.py",
    "qwen3_asr.py",
    "qwen3_moe.py",
    "qwen3_omni_moe.py",
    "qwen3_vl.py",
    "qwen3_vl_moe.py",
    "registry.py",
    "torch_native_llama.py",
    "transformers.py",
    "utils.py",
)


def remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def remove_all(site, patterns):
    for pattern in patterns:
        for path in sorted(site.glob(pattern)):
            remove(path)


def remove_unused(site):
    remove_all(site, UNUSED)
    models = site / "sglang/srt/models"
    for path in sorted(models.iterdir()):
        if not any(path.match(pattern) for pattern in MODELS):
            remove(path)
    # A folder without files would be a package all the same.
    for folder in sorted(filter(Path.is_dir, site.rglob("*")), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


def remove_build_files(kernels):
    """Of kernels that were compiled, SGLang finds the library by the name of its folder."""
    for path in kernels.glob("*/*"):
        if path.suffix != ".so":
            remove(path)


def imported_from(node):
    """The packages that an import statement names."""
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").partition(".")[0]} if node.level == 0 else set()
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    return set()


def with_optional_import(text, package):
    """The source with its one import of the package in a try: without the package its names are None."""
    found = [node for node in ast.walk(ast.parse(text)) if package in imported_from(node)]
    if len(found) != 1:
        raise ValueError(f"there are {len(found)} imports of {package}, and not one")
    node = found[0]
    indent = " " * node.col_offset
    names = " = ".join(alias.asname or alias.name for alias in node.names)
    lines = text.splitlines()
    lines[node.lineno - 1 : node.end_lineno] = [
        f"{indent}try:",
        *(f"    {line}" for line in lines[node.lineno - 1 : node.end_lineno]),
        f"{indent}except ImportError:",
        f"{indent}    {names} = None",
    ]
    return "\n".join(lines) + "\n"


def edit(site):
    for name, package in OPTIONAL_IMPORTS:
        path = site / name
        try:
            path.write_text(with_optional_import(path.read_text(), package))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    shutil.copy(HERE / f"{START_MODULE}.py", site)
    first = site / "sglang/__init__.py"
    first.write_text(f"import {START_MODULE}  # noqa: F401\n" + first.read_text())
