#!/usr/bin/env python3
"""Tests of unpack_wheel.py."""

import pathlib
import tempfile
import unittest
import zipfile

import unpack_wheel


class UnpackWheelTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.wheel = self.folder / "package.whl"
        self.destination = self.folder / "unpacked"

    def write_wheel(self, *names, mode=0o644):
        with zipfile.ZipFile(self.wheel, "w") as archive:
            for name in names:
                entry = zipfile.ZipInfo(name)
                entry.external_attr = mode << 16
                archive.writestr(entry, name)

    def unpacked(self):
        return sorted(str(file.relative_to(self.destination)) for file in self.destination.rglob("*") if file.is_file())

    def test_folders_get_the_names_that_they_are_given(self):
        self.write_wheel("a/b/one", "a/b/c/two", "a/three", "licenses/MIT")
        count = unpack_wheel.unpack(self.wheel, self.destination, [("a/b/", "include"), ("licenses/", "licenses/a")])
        self.assertEqual(count, 3)
        self.assertEqual(self.unpacked(), ["include/c/two", "include/one", "licenses/a/MIT"])

    def test_what_is_left_out(self):
        self.write_wheel("a/one", "a/two")
        self.assertEqual(unpack_wheel.unpack(self.wheel, self.destination, [("a/", "")], ["a/two"]), 1)
        self.assertEqual(self.unpacked(), ["one"])

    def test_programs_stay_programs(self):
        self.write_wheel("bin/nvcc", mode=0o755)
        unpack_wheel.unpack(self.wheel, self.destination, [("bin/", "bin")])
        self.assertTrue((self.destination / "bin/nvcc").stat().st_mode & 0o100)

    def test_a_folder_that_is_not_there(self):
        self.write_wheel("a/one")
        with self.assertRaisesRegex(ValueError, "has no b/"):
            unpack_wheel.unpack(self.wheel, self.destination, [("a/", ""), ("b/", "")])

    def test_a_path_that_leaves_the_folder(self):
        self.write_wheel("a/../../outside")
        with self.assertRaisesRegex(ValueError, "would leave"):
            unpack_wheel.unpack(self.wheel, self.destination, [("a/", "")])
        self.assertFalse((self.folder / "outside").exists())


if __name__ == "__main__":
    unittest.main()
