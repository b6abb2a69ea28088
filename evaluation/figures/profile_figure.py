#!/usr/bin/env python3
"""Draws what a profile (tandem profile) says of the papers' figures of single operations.

    python3 evaluation/figures/profile_figure.py tests/fixtures/profiles/llama-3.1-8b_h200_16sm.json --out docs/img/profile_16sms.svg
    python3 evaluation/figures/profile_figure.py FILE --table      # what the panels show, as a table

Four panels, a layer each: products by rows (APEX figure 2), decode attention of GPU and CPU by batch at one context
(APEX figure 3), how many times the exchange of a cpu row's Q, K, V and O the products take (NEO section 2.2), and how
many times the CPU's decode attention the GPU's is, beside the most at which APEX's inequality 6 lets two sub-batches
pay. Times between points are linear, as those of the scheduler; a panel ends where the profile does. Drawing needs
matplotlib.
"""

import argparse
import bisect
import json
import pathlib
import sys
from dataclasses import dataclass

CONTEXT = 1024
FLAT_ROWS = 256  # up to which APEX has products take the same


def between(points, x):
    """Linear between points (x, y), which are sorted; None beyond them."""
    xs = [point[0] for point in points]
    if not xs or x < xs[0] or x > xs[-1]:
        return None
    i = bisect.bisect_left(xs, x)
    if xs[i] == x:
        return points[i][1]
    (x0, y0), (x1, y1) = points[i - 1], points[i]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def attention_us(table, rows, context):
    """Of decode attention: a grid of rows, and for each of them points (KV tokens of all rows, us)."""
    curves = [(entry["rows"], between(entry["points"], rows * context)) for entry in table]
    return between([(count, us) for count, us in curves if us is not None], rows)


@dataclass(frozen=True)
class Batch:
    rows: int
    gpu_us: float
    cpu_us: float
    products_us: float

    @property
    def ratio(self):
        """N_G / N_C of APEX section 3.2: as many rows, by the time that each side needs for them."""
        return self.cpu_us / self.gpu_us

    @property
    def limit(self):
        """Of inequality 6: below it two sub-batches make more than the GPU alone, decodes only."""
        share = self.gpu_us / self.products_us
        return 2 / share + 3 + share


class Profile:
    def __init__(self, content):
        self.key = content["key"]
        self.tables = content["tables"]

    @property
    def name(self):
        key = self.key
        return f"{key['num_layers']} layers, {key['hidden_size']} wide, {key['dtype']}; {key['device']}; {key['cpu_isa']}"

    def products(self):
        """(rows, us of a layer)."""
        return [tuple(point) for point in self.tables["linear"]]

    def flatness(self):
        """How many times the products of one row those of FLAT_ROWS rows take."""
        products = self.products()
        return between(products, FLAT_ROWS) / products[0][1]

    def batches(self, context=CONTEXT):
        """For batches of powers of two, where the profile knows both sides."""
        found = []
        for rows in (2**i for i in range(13)):
            gpu = attention_us(self.tables["gpu_decode_attention"], rows, context)
            cpu = attention_us(self.tables["cpu_attention"], rows, context)
            products = between(self.products(), rows)
            if None not in (gpu, cpu, products):
                found.append(Batch(rows, gpu, cpu, products))
        return found

    def cpu_alone(self, context=CONTEXT):
        """(rows, us) of CPU attention, also where the gpu tier has no room for as many."""
        rows = (2**i for i in range(13))
        times = [(count, attention_us(self.tables["cpu_attention"], count, context)) for count in rows]
        return [(count, us) for count, us in times if us is not None]

    def exchange_shares(self):
        """(rows, how many times their exchange the products of as many rows take)."""
        products = self.products()
        shares = [(rows, between(products, rows), us) for rows, us in self.tables["exchange"]]
        return [(rows, product / us) for rows, product, us in shares if product is not None]


def table(profile):
    lines = [profile.name, "", "| rows | products, us | exchange | GPU attention, us | CPU attention, us | ratio | limit (6) |", "|" + "---|" * 7]
    exchange = dict(profile.exchange_shares())
    for batch in profile.batches():
        share = f"1/{exchange[batch.rows]:.1f}" if batch.rows in exchange else ""
        lines.append(
            f"| {batch.rows} | {batch.products_us:.0f} | {share} | {batch.gpu_us:.1f} | {batch.cpu_us:.0f} | {batch.ratio:.1f} | {batch.limit:.1f} |"
        )
    lines += ["", f"products of {FLAT_ROWS} rows take {profile.flatness():.2f} times those of one"]
    return "\n".join(lines) + "\n"


def draw(profile, path):
    import figure_style as style

    figure, (products, attention, exchange, ratio) = style.new_figure(4, f"A layer of {profile.name}")
    gpu, cpu = style.COLORS["gpu-only"], style.COLORS["full-offload"]

    products.plot(*zip(*profile.products()), color=gpu, marker="s", markersize=3)
    products.axvline(FLAT_ROWS, color=style.BOUND, linestyle=":")
    products.set(title="products (APEX figure 2)", xlabel="rows", ylabel="us", xscale="log", yscale="log")
    products.annotate(f"{profile.flatness():.1f} times one row's", (FLAT_ROWS, products.get_ylim()[0] * 1.1), ha="right", fontsize=style.NOTE_SIZE)

    batches = profile.batches()
    attention.plot([b.rows for b in batches], [b.gpu_us for b in batches], color=gpu, marker="s", markersize=3, label="GPU")
    attention.plot(*zip(*profile.cpu_alone()), color=cpu, marker="D", markersize=3, label="CPU")
    attention.set(title=f"decode attention at {CONTEXT:,} (APEX figure 3)", xlabel="sequences", ylabel="us", xscale="log", yscale="log")
    attention.legend(fontsize=style.TICK_SIZE, frameon=False)

    exchange.plot(*zip(*profile.exchange_shares()), color=gpu, marker="s", markersize=3)
    exchange.axhspan(5, 10, color=style.PAPER, alpha=0.15, linewidth=0)
    exchange.set(title="products over exchange (NEO 2.2: 5 to 10)", xlabel="rows", ylabel="times", xscale="log")

    ratio.plot([b.rows for b in batches], [b.ratio for b in batches], color=cpu, marker="D", markersize=3, label="CPU time over GPU time")
    ratio.plot([b.rows for b in batches], [b.limit for b in batches], color=style.BOUND, linestyle="--", label="most for (6)")
    ratio.set(title="decode attention, N_G / N_C, and inequality 6", xlabel="sequences", ylabel="times", xscale="log", yscale="log")
    ratio.legend(fontsize=style.TICK_SIZE, frameon=False)

    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, help="SVG or PNG; needs matplotlib")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    profile = Profile(json.loads(arguments.profile.read_text()))
    if not profile.batches():
        sys.exit(f"{arguments.profile} has no batch whose decode attention both sides know at {CONTEXT} tokens")
    if arguments.table or arguments.out is None:
        print(table(profile), end="")
    if arguments.out is not None:
        draw(profile, arguments.out)


if __name__ == "__main__":
    main()
