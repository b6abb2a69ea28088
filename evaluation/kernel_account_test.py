"""The account of a made-up trace: overlaps, gaps, which iterations count."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import kernel_account

SCRIPT = Path(__file__).with_name("kernel_account.py")


def iteration(begin_us, products_us, attention="DecodeAttentionKernel"):
    """Embedding, products that begin 1 us before it ends, 2 us of nothing, attention of 10 us."""
    us = 1000
    at = begin_us * us
    products_end = at + (4 + products_us) * us
    return [(at, at + 5 * us, "_ZN6tandem15WidenRowsKernelE"), (at + 4 * us, products_end, "nvjet_sm90_tst_256x128"),
            (products_end + 2 * us, products_end + 12 * us, attention)]


class KernelAccountTest(unittest.TestCase):
    def test_overlaps_belong_to_who_began_first_and_all_adds_up(self):
        events = iteration(0, 50)
        times, counts = kernel_account.account(events, 70_000)
        self.assertEqual(times, {"embedding": 5000, "products": 49_000, "idle": 6000, "decode attention": 10_000})
        self.assertEqual(sum(times.values()), 70_000)
        self.assertEqual(counts["products"], 1)

    def test_only_iterations_of_the_kind_count(self):
        prompt = "_ZN10flashinfer34BatchPrefillWithPagedKVCacheKernel"
        events = iteration(0, 50) + iteration(100, 500, prompt) + iteration(700, 50) + iteration(800, 50)
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.csv"
            trace.write_text("".join(f"{begin},{end},{gpu},7,1,{name}\n" for begin, end, name in events for gpu in (0, 1)))
            for words, total in (("--decodes 8", 100), ("--prompts 1", 600)):
                printed = subprocess.run([sys.executable, SCRIPT, trace, *words.split()], check=True, capture_output=True,
                                         text=True).stdout
                self.assertIn(f"| sum | | {total}.0 ", printed)
                self.assertIn(f"| {total}.0 | | |", printed)

    def test_products_have_the_bytes_of_the_weights(self):
        options = kernel_account.parser().parse_args(["t", "--decodes", "1"])
        num_bytes, flops = kernel_account.floors(options)["products"]
        self.assertAlmostEqual(num_bytes / 1e9, 15.0, delta=0.2)
        self.assertAlmostEqual(flops / 1e9, 15.0, delta=0.2)


if __name__ == "__main__":
    unittest.main()
