#!/usr/bin/env python3
"""Tests of cmake/cuda_architectures.cmake, with a stand-in for nvidia-smi."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
ALL = "75-real;80-real;86-real;89-real;90a-real;100-real;120"


class CudaArchitecturesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write_program(self, name, text):
        program = self.folder / name
        program.write_text("#!/bin/sh\n" + text)
        program.chmod(0o755)

    def run_cmake(self, call, *definitions):
        script = self.folder / "ask.cmake"
        include = f"include({ROOT}/cmake/cuda_architectures.cmake)"
        script.write_text(f'{include}\n{call}\nfile(WRITE {self.folder}/answer "${{answer}}")\n')
        # A machine that has a GPU and a compiler is to see neither.
        environment = {**os.environ, "PATH": f"{self.folder}:/usr/bin:/bin", "CUDACXX": ""}
        hidden = "-DCMAKE_IGNORE_PATH=/usr/bin;/bin;/usr/lib/wsl/lib"
        command = [shutil.which("cmake"), hidden, *definitions, "-P", script]
        subprocess.run(command, check=True, env=environment, capture_output=True)
        return (self.folder / "answer").read_text()

    def choose(self, value, *definitions):
        return self.run_cmake(f"tandem_choose_cuda_architectures(answer {value})", *definitions)

    def name(self, value):
        return self.run_cmake(f'set(TANDEM_CUDA_ARCHITECTURES "{value}")\ntandem_name_cuda_architectures(answer)')

    def test_the_gpus_of_this_machine(self):
        self.write_program("nvidia-smi", "printf '7.5\\n'\n")
        self.assertEqual(self.choose("native"), "75-real")

    def test_hopper_is_9_0a(self):
        self.write_program("nvidia-smi", "printf '9.0\\n'\n")
        self.assertEqual(self.choose("native"), "90a-real")

    def test_several_gpus_each_once_and_in_order(self):
        self.write_program("nvidia-smi", "printf '12.0\\n8.9\\n12.0\\n10.0\\n'\n")
        self.assertEqual(self.choose("native"), "89-real;100-real;120-real")

    def test_no_gpu_is_all_and_ptx_of_the_last(self):
        self.assertEqual(self.choose("native"), ALL)
        self.assertEqual(self.choose("all"), ALL)

    def test_a_driver_that_does_not_answer_is_no_gpu(self):
        self.write_program("nvidia-smi", "echo 'NVIDIA-SMI has failed' >&2\nexit 9\n")
        self.assertEqual(self.choose("native"), ALL)

    def test_all_is_all_beside_a_gpu(self):
        self.write_program("nvidia-smi", "printf '8.6\\n'\n")
        self.assertEqual(self.choose("all"), ALL)

    def test_a_gpu_before_7_5_is_no_gpu(self):
        self.write_program("nvidia-smi", "printf '7.0\\n'\n")
        self.assertEqual(self.choose("native"), ALL)
        self.write_program("nvidia-smi", "printf '7.0\\n8.9\\n'\n")
        self.assertEqual(self.choose("native"), "89-real")

    def test_without_nvidia_smi_nvcc_asks_the_driver(self):
        self.write_program("nvcc", "")
        compiler = f"-DCMAKE_CUDA_COMPILER={self.folder}/nvcc"
        self.write_program("__nvcc_device_query", "printf '90'\n")
        self.assertEqual(self.choose("native", compiler), "90a-real")
        self.assertEqual(self.choose("native"), "90a-real")
        self.write_program("__nvcc_device_query", "printf '75,86'\n")
        self.assertEqual(self.choose("native", compiler), "75-real;86-real")
        self.write_program("__nvcc_device_query", "echo 'failed with error 0x3'\nexit 1\n")
        self.assertEqual(self.choose("native", compiler), ALL)

    def test_a_list_is_taken_as_it_is(self):
        self.write_program("nvidia-smi", "printf '8.6\\n'\n")
        self.assertEqual(self.choose('"75-virtual;90a-real"'), "75-virtual;90a-real")

    def test_names_for_people(self):
        self.assertEqual(self.name("90a-real"), "9.0a")
        self.assertEqual(self.name(ALL), "7.5, 8.0, 8.6, 8.9, 9.0a, 10.0, 12.0 and later")
        self.assertEqual(self.name("75-virtual"), "7.5 and later")


if __name__ == "__main__":
    unittest.main()
