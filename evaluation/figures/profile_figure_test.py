"""What profile_figure.py makes of a profile."""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import profile_figure  # noqa: E402
from profile_figure import Batch, Profile, attention_us, between  # noqa: E402

PROFILES = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/profiles"


def curve(rows, *points):
    return {"rows": rows, "points": [list(point) for point in points]}


KEY = {"num_layers": 2, "hidden_size": 8, "dtype": "bf16", "device": "cuda: a card", "cpu_isa": "1 thread"}
CONTENT = {
    "key": KEY,
    "tables": {
        "linear": [[1, 10.0], [256, 10.0], [512, 30.0]],
        "gpu_decode_attention": [curve(1, (64, 1.0), (1024, 4.0)), curve(4, (256, 2.0), (4096, 8.0))],
        "cpu_attention": [curve(1, (64, 10.0), (1024, 40.0)), curve(4, (256, 20.0), (16384, 200.0))],
        "exchange": [[1, 2.0], [4, 2.5], [1024, 9.0]],
    },
}


class ProfileFigureTest(unittest.TestCase):
    def test_between_points_it_is_linear_and_beyond_them_nothing(self):
        self.assertEqual(between([(1, 10.0), (3, 30.0)], 2), 20.0)
        self.assertEqual(between([(1, 10.0), (3, 30.0)], 3), 30.0)
        self.assertIsNone(between([(1, 10.0), (3, 30.0)], 4))
        self.assertIsNone(between([(1, 10.0), (3, 30.0)], 0))
        self.assertIsNone(between([], 1))

    def test_attention_is_looked_up_by_all_tokens_of_the_batch(self):
        table = CONTENT["tables"]["gpu_decode_attention"]
        self.assertEqual(attention_us(table, 4, 1024), 8.0)
        # 2 rows of 544 tokens are 1,088: only four rows know as many.
        self.assertIsNone(attention_us(table, 2, 544))
        # 2 rows of 512: 4.0 with one row; with four, 2 + 6 * 768 / 3840.
        self.assertAlmostEqual(attention_us(table, 2, 512), 4.0 + (3.2 - 4.0) / 3)

    def test_inequality_6(self):
        # Equal times of products and attention: 2 + 3 + 1, as section 3.2 has it.
        self.assertEqual(Batch(rows=1, gpu_us=5.0, cpu_us=60.0, products_us=5.0).limit, 6.0)
        self.assertEqual(Batch(rows=1, gpu_us=5.0, cpu_us=60.0, products_us=5.0).ratio, 12.0)
        for share in (0.5, 1.0, 1.5):
            self.assertLessEqual(Batch(1, share, 1.0, 1.0).limit, 7.5)

    def test_panels(self):
        profile = Profile(CONTENT)
        self.assertEqual([batch.rows for batch in profile.batches()], [1, 4])
        self.assertEqual(profile.flatness(), 1.0)
        self.assertEqual(profile.exchange_shares(), [(1, 5.0), (4, 4.0)])
        self.assertIn("| 4 | 10 | 1/4.0 | 8.0 |", profile_figure.table(profile))

    def test_checked_in_profiles_have_all_panels(self):
        for name in ("llama-3.1-8b_h200_16sm.json", "llama-3.1-8b_h200_whole.json"):
            profile = Profile(json.loads((PROFILES / name).read_text()))
            self.assertGreaterEqual(len(profile.batches()), 4, name)
            self.assertTrue(profile.exchange_shares() and profile.cpu_alone(), name)

    def test_drawing_is_the_same_each_time(self):
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            self.skipTest("matplotlib is not there")
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / f"{i}.svg" for i in range(2)]
            for path in paths:
                profile_figure.draw(Profile(CONTENT), path)
            self.assertIn(b"APEX figure 3", paths[0].read_bytes())
            self.assertEqual(paths[0].read_bytes(), paths[1].read_bytes())


if __name__ == "__main__":
    unittest.main()
