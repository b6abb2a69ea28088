#!/usr/bin/env python3
"""Tests of choose_cuda.sh, and of what quickstart.sh makes of its answer, with stand-ins for nvidia-smi, nvcc and the system."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEBIAN = 'ID=debian\nNAME="Debian GNU/Linux"\nVERSION_ID="12"\n'
UBUNTU = 'ID=ubuntu\nID_LIKE=debian\nNAME="Ubuntu"\nVERSION_ID="24.04"\n'
ROCKY = 'ID="rocky"\nID_LIKE="rhel centos fedora"\nNAME="Rocky Linux"\n'


class ChooseCudaTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.system = pathlib.Path(folder.name)
        # What the scripts call, and nothing else of this machine's.
        self.programs = self.system / "programs"
        self.programs.mkdir()

    def write(self, path, text, mode=0o644):
        file = self.system / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)
        return file

    def write_smi(self, *gpus, path="programs/nvidia-smi"):
        lines = "".join(f"echo '{gpu}'\n" for gpu in gpus)
        self.write(path, f"#!/bin/sh\n{lines}", 0o755)

    def write_toolkit(self, folder, version, codes="sm_75 sm_80 sm_86 sm_90 sm_120", has_cublas=True):
        script = f"""#!/bin/sh
case "$1" in
  --version) echo 'Cuda compilation tools, release {version}, V{version}.88' ;;
  --list-gpu-code) printf '%s\\n' {codes} ;;
esac
"""
        if has_cublas:
            self.write(f"{folder}/include/cublasLt.h", "")
        return str(self.write(f"{folder}/bin/nvcc", script, 0o755))

    def run_script(self, name, *arguments, **variables):
        hidden = {"CUDACXX", "CUDA_HOME", "CUDA_PATH"}
        environment = {key: value for key, value in os.environ.items() if key not in hidden}
        # A CUDA toolkit on the PATH of the tests' machine is not that of the machine that they stand in for.
        environment.update(PATH=f"{self.programs}:/usr/bin:/bin", TANDEM_TEST_SYSTEM=str(self.system), **variables)
        return subprocess.run([ROOT / "scripts" / name, *arguments], env=environment, capture_output=True, text=True, cwd="/")

    def choose(self, **variables):
        result = self.run_script("choose_cuda.sh", **variables)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.splitlines()

    def refused(self):
        result = self.run_script("choose_cuda.sh")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        return result.stderr

    # --- the GPU ---

    def test_no_gpu(self):
        self.assertEqual(self.choose(), ["cpu there is no NVIDIA GPU"])

    def test_a_gpu_without_a_driver(self):
        self.write("etc/os-release", UBUNTU)
        self.write("sys/bus/pci/devices/0000:00:1e.0/vendor", "0x10de\n")
        self.write("sys/bus/pci/devices/0000:00:1e.0/class", "0x030200\n")
        said = self.choose()
        self.assertEqual(len(said), 1)
        self.assertIn("no driver that works", said[0])
        self.assertIn("nvidia-driver-580", said[0])
        # Its sound card alone is no GPU.
        self.write("sys/bus/pci/devices/0000:00:1e.0/class", "0x040300\n")
        self.assertEqual(self.choose(), ["cpu there is no NVIDIA GPU"])

    def test_a_driver_that_does_not_answer(self):
        self.write("programs/nvidia-smi", "#!/bin/sh\necho 'NVIDIA-SMI has failed because of, 7, things'\nexit 9\n", 0o755)
        self.assertEqual(self.choose(), ["cpu there is no NVIDIA GPU"])

    def test_a_gpu_before_7_5(self):
        self.write_smi("580.65.06, 7.0, Tesla V100-SXM2-16GB")
        self.assertEqual(self.choose(), ["cpu Tesla V100-SXM2-16GB has compute capability 7.0, and the cuda backend begins at 7.5"])

    def test_several_gpus(self):
        self.write_smi("580.65.06, 8.6, NVIDIA A10G", "580.65.06, 8.6, NVIDIA A10G", "580.65.06, 7.0, V100", "580.65.06, 12.0, RTX 5090")
        self.assertEqual(self.choose(), ["fetch", "capabilities 8.6 12.0"])

    def test_under_wsl(self):
        self.write_smi("581.15, 8.9, NVIDIA GeForce RTX 4090", path="usr/lib/wsl/lib/nvidia-smi")
        self.assertEqual(self.choose(), ["fetch", "capabilities 8.9"])
        self.write_smi("560.94, 8.9, NVIDIA GeForce RTX 4090", path="usr/lib/wsl/lib/nvidia-smi")
        self.assertIn("driver of Windows", self.refused())

    # --- the toolkit ---

    def test_a_driver_of_580_fetches(self):
        self.write_smi("580.65.06, 9.0, NVIDIA H200")
        self.assertEqual(self.choose(), ["fetch", "capabilities 9.0"])

    def test_an_installed_toolkit_is_taken(self):
        self.write_smi("580.65.06, 9.0, NVIDIA H200")
        nvcc = self.write_toolkit("usr/local/cuda", "13.0")
        self.assertEqual(self.choose(), [f"toolkit {nvcc}", "capabilities 9.0"])

    def test_12_8_does_with_an_old_driver(self):
        self.write_smi("535.183.01, 7.5, Tesla T4")
        nvcc = self.write_toolkit("usr/local/cuda-12.8", "12.8")
        self.assertEqual(self.choose(), [f"toolkit {nvcc}", "capabilities 7.5"])

    def test_an_older_toolkit_is_not_taken(self):
        self.write_smi("580.65.06, 7.5, Tesla T4")
        self.write_toolkit("usr/local/cuda-12.4", "12.4")
        self.assertEqual(self.choose()[0], "fetch")
        self.assertIn("12.8 is the first", self.run_script("choose_cuda.sh").stderr)

    def test_one_that_the_driver_does_not_run_is_not_taken(self):
        self.write_smi("570.86.10, 8.6, NVIDIA A10G")
        self.write_toolkit("usr/local/cuda", "13.0")
        nvcc = self.write_toolkit("usr/local/cuda-12.9", "12.9")
        self.assertEqual(self.choose()[0], f"toolkit {nvcc}")

    def test_one_that_does_not_know_the_gpu_is_not_taken(self):
        self.write_smi("580.65.06, 12.1, NVIDIA GB10")
        self.write_toolkit("usr/local/cuda", "12.8")
        self.assertEqual(self.choose()[0], "fetch")

    def test_one_without_cublas_is_not_taken(self):
        self.write_smi("580.65.06, 9.0, NVIDIA H200")
        self.write_toolkit("usr/local/cuda", "13.0", has_cublas=False)
        if not pathlib.Path("/usr/include/cublasLt.h").exists():
            self.assertEqual(self.choose()[0], "fetch")

    def test_the_newest_of_several_and_what_is_named_before_it(self):
        self.write_smi("580.65.06, 9.0, NVIDIA H200")
        self.write_toolkit("usr/local/cuda-12.9", "12.9")
        newest = self.write_toolkit("usr/local/cuda-13.1", "13.1")
        self.assertEqual(self.choose()[0], f"toolkit {newest}")
        named = self.write_toolkit("elsewhere", "12.8")
        self.assertEqual(self.choose(CUDACXX=named)[0], f"toolkit {named}")
        self.assertEqual(self.choose(CUDA_HOME=str(self.system / "elsewhere"))[0], f"toolkit {named}")

    def test_what_the_build_folder_was_configured_with_stays(self):
        self.write_smi("580.65.06, 9.0, NVIDIA H200")
        self.write_toolkit("usr/local/cuda", "13.0")
        configured = self.write_toolkit("fetched", "13.0")
        self.write("CMakeCache.txt", f"CMAKE_CUDA_COMPILER:FILEPATH={configured}\n")
        self.assertEqual(self.choose()[0], f"toolkit {configured}")

    # --- a driver that is too old ---

    def test_the_sentence_says_how_each_system_gets_a_driver(self):
        self.write_smi("535.183.01, 7.5, Tesla T4")
        for release, how in [(DEBIAN, "Debian GNU/Linux 12 gets it from NVIDIA's repository"),
                             (UBUNTU, "sudo apt-get install nvidia-driver-580"),
                             ("ID=linuxmint\nID_LIKE='ubuntu debian'\n", "sudo apt-get install nvidia-driver-580"),
                             ("ID=fedora\nNAME='Fedora Linux'\n", "sudo dnf install akmod-nvidia"),
                             (ROCKY, "Rocky Linux gets it from NVIDIA's repository"),
                             ("ID=arch\nNAME='Arch Linux'\n", "sudo pacman -Syu nvidia-open"),
                             ("ID=nixos\nNAME=NixOS\n", "says how NixOS gets it"),
                             ("", "says how this system gets it")]:
            self.write("etc/os-release", release)
            sentence = self.refused()
            self.assertIn("the driver of Tesla T4 is 535.183.01, and CUDA 13.0, which would be fetched, needs 580 or later", sentence)
            self.assertIn(how, sentence)
            self.assertEqual(sentence.count("\n"), 1)
        self.write(".dockerenv", "")
        self.assertIn("the host's", self.refused())

    # --- what the quickstart makes of it ---

    def quickstart(self, *arguments, **variables):
        result = self.run_script("quickstart.sh", "--dry-run", *arguments, **variables)
        self.assertEqual(result.stdout, "")
        return result.returncode, result.stderr

    def test_quickstart_without_a_gpu(self):
        code, said = self.quickstart("--build")
        self.assertEqual(code, 0)
        self.assertIn("serves on the CPU: there is no NVIDIA GPU", said)
        self.assertIn("build/host-release/tandem", said)
        self.assertIn("would serve with --device host", said)

    def test_quickstart_with_a_gpu(self):
        self.write_smi("580.65.06, 8.6, NVIDIA A10G")
        code, said = self.quickstart("--build")
        self.assertEqual(code, 0)
        self.assertIn("build/cuda-release/tandem", said)
        self.assertIn("code for compute capability 8.6, with NVIDIA's toolkit from PyPI", said)
        self.assertIn("would serve with --device cuda", said)
        nvcc = self.write_toolkit("usr/local/cuda", "12.9")
        code, said = self.quickstart("--build")
        self.assertIn(f"code for compute capability 8.6, with {nvcc}", said)
        self.assertNotIn("downloads CUDA", said)

    def test_quickstart_goes_without_the_gpu(self):
        self.write_smi("535.183.01, 8.6, NVIDIA A10G")
        code, said = self.quickstart("--build")
        self.assertEqual(code, 1)
        self.assertIn("needs 580 or later", said)
        self.assertNotIn("download", said.replace("downloads or", ""))
        code, said = self.quickstart("--build", "--cpu")
        self.assertEqual(code, 0)
        self.assertIn("would serve with --device host", said)

    def test_quickstart_with_an_installed_program(self):
        self.write_smi("580.65.06, 8.6, NVIDIA A10G")
        self.write("programs/tandem", "#!/bin/sh\necho 'backends: host'\n", 0o755)
        code, said = self.quickstart()
        self.assertEqual(code, 0)
        self.assertIn("has no cuda backend; --build", said)
        self.assertIn("would serve with --device host", said)
        self.write("programs/tandem", "#!/bin/sh\necho 'backends: host, cuda (8.6)'\n", 0o755)
        code, said = self.quickstart()
        self.assertIn("would serve with --device cuda", said)
        self.assertNotIn("downloads CUDA", said)


if __name__ == "__main__":
    unittest.main()
