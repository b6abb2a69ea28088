#!/usr/bin/env python3
"""Tests of check_layers.py: a good tree passes, and every kind of bad tree fails with a message that says where."""

import unittest

import check_layers
import checking

HEAD = "# What all may use. What one folder needs\n# is there.\n"
GOOD = {
    "src/base/CMakeLists.txt": HEAD + "tandem_library(base SOURCES a.cc LIBRARIES fmt::fmt)",
    "src/base/a.h": "#pragma once\n",
    "src/base/a.cc": '#include "base/a.h"\n',
    "src/device/CMakeLists.txt": HEAD + "tandem_library(device SOURCES d.cc DEPENDS base)  # DEPENDS nothing else",
    "src/device/d.h": '#include "base/a.h"\n',
    "src/device/cuda/README.md": "# CUDA\n\nCUDA's streams; kernels are in `ops`.\n",
    "src/device/cuda/error.h": "#include <cuda_runtime.h>\ncudaError_t Last();\n",
    "src/plan/CMakeLists.txt": HEAD + "tandem_library(plan SOURCES p.cc DEPENDS base)",
    "src/plan/p.h": '#include "base/a.h"\n',
    "src/kv/CMakeLists.txt": HEAD + "tandem_library(kv SOURCES k.cc\n  DEPENDS base plan device\n  LIBRARIES x)",
    "src/kv/view.h": '#include "plan/p.h"\n',
    "src/kv/cache.h": '#include "device/d.h"\n#include "kv/view.h"\n',
    "src/policy/CMakeLists.txt": HEAD + "tandem_library(policy SOURCES s.cc DEPENDS base plan kv)\n"
    "tandem_test(policy SOURCES s_test.cc DEPENDS policy device LABELS threads)",
    "src/policy/s.h": '#include "kv/view.h"\n',
    "src/policy/s_test.cc": '#include "device/d.h"\n#include "policy/s.h"\n',
    "src/execute/CMakeLists.txt": HEAD + "tandem_library(execute SOURCES e.cc DEPENDS base plan kv device)",
    "src/execute/e.cc": '#include "kv/cache.h"\n',
}


class CheckLayersTest(checking.TreeTest):
    checker = check_layers
    good = GOOD

    def expect_failure(self, changes, message):
        self.assertIn(message, "\n".join(check_layers.check(self.write_tree(changes))))

    def test_good_tree_passes(self):
        self.assertEqual(check_layers.check(self.write_tree({})), [])

    def test_program_says_what_is_wrong_and_fails(self):
        run = self.run_program({"src/plan/p.h": '#include "device/d.h"\n'})
        self.assertEqual(run.returncode, 1)
        self.assertIn("does not name device", run.stderr)

    def test_undeclared_include(self):
        self.expect_failure(
            {"src/plan/p.h": '// first line\n#include "device/d.h"\n'},
            'src/plan/p.h:2: includes "device/d.h", but DEPENDS of src/plan does not name device',
        )

    def test_dependency_of_the_tests_alone(self):
        self.expect_failure({"src/policy/s.cc": '#include "device/d.h"\n'}, "does not name device")

    def test_what_is_for_tests_stays_with_them(self):
        bench = {"src/policy/bench_testing.h": '#include "device/d.h"\n'}
        in_a_test = {**bench, "src/policy/s_test.cc": '#include "policy/bench_testing.h"\n'}
        self.assertEqual(check_layers.check(self.write_tree(in_a_test)), [])
        self.expect_failure(
            {**bench, "src/policy/s.cc": '#include "policy/bench_testing.h"\n'},
            'src/policy/s.cc:1: includes "policy/bench_testing.h", which is for tests',
        )

    def test_include_that_is_no_file(self):
        self.expect_failure({"src/base/a.cc": '#include "a.h"\n'}, 'src/base/a.cc:1: include "a.h" names no file')

    def test_cycle(self):
        self.expect_failure(
            {"src/base/CMakeLists.txt": HEAD + "tandem_library(base SOURCES a.cc DEPENDS kv)"},
            "DEPENDS form a cycle: base -> kv -> base",
        )

    def test_unknown_dependency(self):
        self.expect_failure(
            {"src/plan/CMakeLists.txt": "tandem_library(plan SOURCES p.cc DEPENDS base bsae)"},
            "DEPENDS names 'bsae', which is no folder",
        )

    def test_policy_reaches_device_through_a_header(self):
        self.expect_failure(
            {"src/policy/s.h": '#include "kv/cache.h"\n'},
            "policy must not reach device: policy/s.h -> kv/cache.h -> device/d.h",
        )

    def test_execute_includes_policy_even_if_declared(self):
        self.expect_failure(
            {
                "src/execute/CMakeLists.txt": HEAD + "tandem_library(execute SOURCES e.cc DEPENDS kv policy)",
                "src/execute/e.cc": '#include "policy/s.h"\n',
            },
            "execute must not reach policy: execute/e.cc -> policy/s.h",
        )

    def test_cuda_outside_its_folders(self):
        for line in ("cudaError_t error;", "#include <cuda_runtime.h>", "cudaMalloc(&p, 1);"):
            with self.subTest(line):
                self.expect_failure({"src/kv/view.h": line + "\n"}, "src/kv/view.h: names CUDA's own types")

    def test_cuda_in_ops(self):
        changes = {
            "src/ops/CMakeLists.txt": HEAD + "tandem_library(ops SOURCES o.cc DEPENDS base)",
            "src/ops/cuda/README.md": "Kernels.\n",
            "src/ops/cuda/rows/README.md": "What is done by rows.\n",
            "src/ops/cuda/rows/norm.cu": "#include <cuda_bf16.h>\n",
        }
        self.assertEqual(check_layers.check(self.write_tree(changes)), [])

    def test_folder_that_does_not_say_what_lives_there(self):
        message = "does not begin by saying what lives there"
        for head in ("", "\n" + HEAD, "#\n", "# x\n", "# For the traces\n\n# Of all.\n"):
            with self.subTest(head):
                cmake = {"src/plan/CMakeLists.txt": head + "tandem_library(plan SOURCES p.cc DEPENDS base)"}
                self.expect_failure(cmake, f"src/plan: CMakeLists.txt {message}")
                # Where there is a CMakeLists.txt, that is the place.
                self.expect_failure({**cmake, "src/plan/README.md": "Plans.\n"}, f"src/plan: CMakeLists.txt {message}")
        for text in ("", "# Title.\n", "# Title\n\nno sentence\n"):
            with self.subTest(text):
                self.expect_failure({"src/device/cuda/README.md": text}, f"src/device/cuda: README.md {message}")
        deep = {"src/device/cuda/sync/flag.h": "", "src/device/cuda/sync/README.md": "Flags.\n"}
        self.assertEqual(check_layers.check(self.write_tree(deep)), [])
        self.expect_failure({"src/device/cuda/sync/flag.h": ""}, f"src/device/cuda/sync: README.md {message}")
        # A folder that has only folders says it too.
        hollow = {"src/device/tpu/sync/flag.h": "", "src/device/tpu/sync/README.md": "Flags.\n"}
        self.expect_failure(hollow, f"src/device/tpu: README.md {message}")

    def test_names_that_say_nothing(self):
        for name in ("utils.h", "block_manager.cc", "common.h", "engine_impl.cc"):
            with self.subTest(name):
                self.expect_failure({f"src/base/{name}": ""}, f"src/base/{name}: a file is named after what it holds")

    def test_folder_without_library(self):
        self.expect_failure({"src/extra/x.cc": ""}, "src/extra: has sources but no CMakeLists.txt")


if __name__ == "__main__":
    unittest.main()
