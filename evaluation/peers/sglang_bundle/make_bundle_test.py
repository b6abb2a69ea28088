#!/usr/bin/env python3
"""Tests of what make_bundle.py does to wheels, on libraries that are compiled here and on packages of a few lines."""

import ctypes
import hashlib
import importlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import cut_libraries  # noqa: E402
import device_code  # noqa: E402
import elf_file  # noqa: E402
import make_bundle  # noqa: E402
import python_cuts  # noqa: E402

FOR_ONE_ARCH, ZSTD = device_code.FOR_ONE_ARCH, 0x8000
# Attention for heads of 128 and of 64, what both need, and a function of the loader's.
SOURCE = """
namespace cutlass { struct bfloat16_t {}; }
__attribute__((section(".nv_fatbin"), used)) static const unsigned char device_code[] = {%s};
template <int Arch, class T, int HeadDim, int ValueDim> void run_mha_fwd_(int* x) { *x += HeadDim; }
template void run_mha_fwd_<90, cutlass::bfloat16_t, 128, 128>(int*);
template void run_mha_fwd_<90, cutlass::bfloat16_t, 64, 64>(int*);
extern "C" int of_all(int x) { return x + 1; }
__attribute__((constructor)) void at_start() {}
"""


def container(*images):
    """images: (arch, flags, code)."""
    body = b""
    for arch, flags, code in images:
        body += device_code.IMAGE.pack(2, 0x101, 64, len(code), 0, 0, 0, 1, arch, 0, 0, flags) + bytes(16) + code
    return device_code.CONTAINER.pack(device_code.CONTAINER_MAGIC, 1, 16, len(body)) + body


def main_loop(head_dim=128, value_dim=128, element="bfloat16_t", soft_cap="false"):
    return (
        "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, "
        "cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >, "
        f"cute::tuple<cute::C<128>, cute::C<176>, cute::C<{head_dim}> >, {value_dim}, cutlass::{element}, float, "
        f"cutlass::arch::Sm90, true, false, {soft_cap}, true, false>, int> > >(int)"
    )


@unittest.skipUnless(shutil.which("g++") and shutil.which("c++filt"), "there is no compiler")
class Libraries(unittest.TestCase):
    IMAGES = (
        (80, 0x11, b"code of sm_80..."),
        (90, 0x11, b"code of sm_90..."),
        (90, 0x11 | FOR_ONE_ARCH, b"code of sm_90a.."),
        (90, 0x11 | FOR_ONE_ARCH | ZSTD, b"compressed code."),
    )

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        # Containers need not follow each other closely.
        content = container(*self.IMAGES[:2]) + bytes(24) + container(*self.IMAGES[2:])
        self.library = Path(folder.name) / "library.so"
        source = SOURCE % ",".join(map(str, content))
        command = ["g++", "-x", "c++", "-O1", "-shared", "-fPIC", "-o", self.library, "-"]
        subprocess.run(command, input=source, text=True, check=True)

    def images(self):
        data = self.library.read_bytes()
        found = device_code.images(data, elf_file.sections(data)[".nv_fatbin"])
        return [(one.arch, one.flags, data[one.code : one.code + one.size]) for one in found]

    def test_images_are_read(self):
        self.assertEqual(self.images(), list(self.IMAGES))

    def test_of_common_kernels_those_for_sm_90a_are_left(self):
        size = self.library.stat().st_size
        self.assertEqual(cut_libraries.cut_common_kernels(self.library), 32)
        found = self.images()
        self.assertEqual(found[2:], list(self.IMAGES[2:]))
        self.assertEqual([code for _, _, code in found[:2]], [bytes(16)] * 2)
        # No image without code is one that a GPU of the bundle would load.
        self.assertEqual([arch for arch, _, _ in found], [80, device_code.OTHER_ARCH, 90, 90])
        self.assertEqual(self.library.stat().st_size, size)

    def test_of_attention_the_host_functions_go_too_and_the_rest_still_runs(self):
        before = {function.name: function for function in elf_file.functions(self.library.read_bytes())}
        self.assertEqual(cut_libraries.cut_flash_attention(self.library), 16)
        self.assertEqual([code for _, _, code in self.images()], [bytes(16)] * 2 + [self.IMAGES[2][2], bytes(16)])
        data = self.library.read_bytes()
        code = elf_file.sections(data)[".text"]
        gone = [
            name
            for name, function in before.items()
            if not any(data[function.address - code.address + code.offset :][: function.size])
        ]
        self.assertEqual(len(gone), 1)
        self.assertIn("Li64ELi64E", gone[0])
        loaded = ctypes.CDLL(str(self.library))
        self.assertEqual(loaded.of_all(1), 2)
        (kept,) = [name for name in before if "Li128ELi128E" in name]
        number = ctypes.c_int(1)
        loaded[kept](ctypes.byref(number))
        self.assertEqual(number.value, 129)

    def test_what_is_no_library_is_told(self):
        self.library.write_bytes(b"text" * 100)
        with self.assertRaisesRegex(ValueError, "no ELF file"):
            cut_libraries.cut_common_kernels(self.library)

    def test_functions_that_run_at_the_start_are_found(self):
        data = self.library.read_bytes()
        starts = set(elf_file.start_addresses(data))
        names = {function.name for function in elf_file.functions(data) if function.address in starts}
        self.assertIn("_Z8at_startv", names)


class Attention(unittest.TestCase):
    def test_images_are_kept_for_one_wanted_kernel(self):
        wanted = cut_libraries.has_wanted_kernels
        self.assertTrue(wanted([main_loop(64), main_loop()]))
        for other in ({"head_dim": 192}, {"value_dim": 512}, {"element": "half_t"}, {"soft_cap": "true"}):
            self.assertFalse(wanted([main_loop(**other)]), other)
        self.assertFalse(wanted([main_loop(), "void device_kernel<flash::enable_sm80<int> >()"]))
        self.assertTrue(wanted(["void flash::prepare_varlen_num_blocks_kernel<32, true>(int)"]))

    def test_of_host_functions_launchers_of_other_kernels_go(self):
        wanted = cut_libraries.is_wanted_on_host
        for dim, soft_cap, is_wanted in ((128, "false", True), (128, "true", False), (64, "false", False)):
            name = f"void run_flash_fwd<90, {dim}, {dim}, 1, cutlass::bfloat16_t, float, true, false, {soft_cap}>(int)"
            self.assertEqual(wanted(name), is_wanted, name)
        self.assertFalse(wanted("int flash::FlashAttnFwdSm80<int>::run()"))
        self.assertTrue(wanted("mha_fwd(at::Tensor)"))

    def test_overlaps_are_refused(self):
        kept, gone = elf_file.Function("a", 100, 50), elf_file.Function("b", 150, 50)
        cut_libraries.check_apart([kept], [gone], [220])
        for address, starts in ((149, []), (80, []), (150, [199])):
            with self.assertRaisesRegex(ValueError, "overlap"):
                cut_libraries.check_apart([kept], [elf_file.Function("b", address, 50)], starts)


class PythonCuts(unittest.TestCase):
    def test_an_import_becomes_optional(self):
        text = "if True:\n    from absent_package.part import (\n        one,\n        two as three,\n    )\n"
        text += "import json\n"
        names = {}
        exec(python_cuts.with_optional_import(text, "absent_package"), names)
        self.assertIsNone(names["one"])
        self.assertIsNone(names["three"])
        self.assertIn("json", names)

    def test_an_import_that_is_not_there_is_told(self):
        with self.assertRaisesRegex(ValueError, "there are 0 imports of absent_package"):
            python_cuts.with_optional_import("import json\n", "absent_package")

    def test_unused_files_and_other_models_go(self):
        with tempfile.TemporaryDirectory() as name:
            site = Path(name)
            for path in (
                "sglang/srt/models/llama.py",
                "sglang/srt/models/deepseek_common/a.py",
                "sglang/srt/models/mamba.py",
                "sglang/srt/models/mixtral/b.py",
                "sglang/test/c.py",
                "sgl_kernel/sm90/common_ops.abi3.so",
                "sgl_kernel/sm100/common_ops.abi3.so",
                "tvm_ffi/testing.py",
                "tvm_ffi/x/tests/y/z.py",
            ):
                (site / path).parent.mkdir(parents=True, exist_ok=True)
                (site / path).touch()
            python_cuts.remove_unused(site)
            left = sorted(str(path.relative_to(site)) for path in site.rglob("*") if path.is_file())
            self.assertEqual(
                left,
                [
                    "sgl_kernel/sm90/common_ops.abi3.so",
                    "sglang/srt/models/deepseek_common/a.py",
                    "sglang/srt/models/llama.py",
                ],
            )
            self.assertFalse((site / "tvm_ffi").exists())

    def test_names_of_an_absent_package_are_types(self):
        # Without transformers: the module's own part alone.
        code = (HERE / "sglang_bundle_start.py").read_text().removesuffix("let_registrations_repeat()\n")
        exec(code, {"__name__": "start"})
        self.addCleanup(sys.meta_path.pop)
        absent = importlib.import_module("xgrammar.part")
        self.addCleanup(lambda: [sys.modules.pop(name) for name in ("xgrammar.part", "xgrammar")])
        self.assertIsInstance(absent.Grammar, type)
        with self.assertRaisesRegex(RuntimeError, "xgrammar.part is not in the bundle"):
            absent.Grammar()


class Bundle(unittest.TestCase):
    def site(self, folder):
        content = {
            "sglang/__init__.py": b'__version__ = "1"\n',
            "sgl_kernel/ops.so": b"code" + bytes(5_000_000),
            "jitcache/a/a.so": os.urandom(300_000),
        }
        for path, data in content.items():
            (folder / "site" / path).parent.mkdir(parents=True)
            (folder / "site" / path).write_bytes(data)
        (folder / "site/sgl_kernel/ops.so").chmod(0o755)
        return folder / "site", content

    def unpack(self, peer, pieces, folder):
        script = HERE.parent / "peer_unpack.sh"
        environment = os.environ | {"TMPDIR": str(folder)}
        return subprocess.run(["bash", script, peer, pieces], env=environment, capture_output=True, text=True)

    def test_is_unpacked_as_it_was(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            site, content = self.site(folder)
            pieces = make_bundle.pack(site, folder / "pieces", 100_000)
            self.assertEqual([path.name for path in pieces], ["piece_00", "piece_01", "piece_02", "piece_03"])
            self.assertLess(sum(path.stat().st_size for path in pieces), 320_000)
            done = self.unpack("sglang", folder / "pieces", folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("sglang 1\n", done.stdout)
            for path, data in content.items():
                self.assertEqual((folder / "sglang_site" / path).read_bytes(), data)
            self.assertTrue(os.access(folder / "sglang_site/sgl_kernel/ops.so", os.X_OK))
            environment = (folder / "sglang_env.sh").read_text()
            self.assertIn(f"TVM_FFI_CACHE_DIR={folder}/sglang_site/jitcache", environment)
            self.assertIn("are not of vllm", self.unpack("vllm", folder / "pieces", folder).stderr)

    def test_the_same_content_makes_the_same_pieces(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            site, _ = self.site(folder)
            (first,) = make_bundle.pack(site, folder / "a", 1 << 20)
            os.utime(site / "jitcache/a/a.so", (1, 1))
            (second,) = make_bundle.pack(site, folder / "b", 1 << 20)
            self.assertEqual(*(hashlib.sha256(path.read_bytes()).digest() for path in (first, second)))

    def test_a_damaged_piece_is_told(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            site, _ = self.site(folder)
            (piece,) = make_bundle.pack(site, folder / "pieces", 1 << 20)
            with piece.open("r+b") as file:
                file.seek(1000)
                file.write(struct.pack("<Q", 0))
            done = self.unpack("sglang", folder / "pieces", folder)
            self.assertEqual(done.returncode, 1)
            self.assertIn("damaged", done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
