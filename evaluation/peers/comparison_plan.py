"""Plans of compare_engines.py: what is measured, as data.

    {"defaults": {field of any row: value}, "anchor": ROW, "rows": [ROW, ...]}

A row has "name", "kind", "model" (a shape of tandem --dummy), "vllm", "sglang" and "tandem" (variants by name, of each
none or more) and what its kind measures, its points:

    offline   "works": [WORK, ...]              output tokens a second
    prefill   "works": [WORK, ...]              prompt tokens a second; outputs have one token
    decode    "batches": [B, ...], "context"    milliseconds a step
    online    "work": WORK, "rates": [R, ...], "duration_s", "warm_up_s", "cool_down_s": latencies against load

WORK is {"workload", "num_requests", perhaps "name", and "offset": how many of the workload come before}; that is what
tandem bench takes, or exact:in=2048,out=1, where all are that long.
A variant of vllm is {"kv_offload_gib", "prefix_caching", "engine_args": {...}}, all optional; one of sglang the last
two of these; one of tandem its flags, as text. Online rows have no variants of sglang. "tandem_flags" stand before those of
all of a row's variants. Optional: "gpu_kv_tokens" (without it KV takes what the memory has), "max_model_len",
"num_warmup", "repeat", and what runs are expected to take: "start_s" and "point_s" (seconds).
"""

import json
import shlex
from dataclasses import dataclass, field

KINDS = ("offline", "prefill", "decode", "online")
OPTIONAL = {
    "gpu_kv_tokens": None,
    "max_model_len": 8192,
    "num_warmup": 16,
    "context": 1024,
    "duration_s": 30,
    "warm_up_s": 5,
    "cool_down_s": 0,
    "tandem_flags": "",
    "repeat": None,
    "start_s": 60,
    "point_s": 60,
}
# Of a row, what its points are made of.
POINT_FIELDS = {"offline": "works", "prefill": "works", "decode": "batches", "online": "rates"}
WORK_FIELDS = {"name", "workload", "num_requests", "offset"}
# What a table calls the engines beside Tandem, and what variants of them may have.
PEER_NAMES = {"vllm": "vLLM", "sglang": "SGLang"}
PEER_FIELDS = {
    "vllm": {"kv_offload_gib", "prefix_caching", "engine_args"},
    "sglang": {"prefix_caching", "engine_args"},
}
SIDES = (*PEER_NAMES, "tandem")
# Sides without a server that tandem bench online can load.
OFFLINE_SIDES = {"sglang"}


@dataclass(frozen=True)
class Variant:
    side: str  # one of SIDES
    name: str
    settings: dict | list  # of a peer; the flags of tandem


@dataclass
class Row:
    name: str
    kind: str
    model: str
    points: dict  # {key: what it is: a work, {"batch"} or {"rate"}}
    variants: list
    fields: dict = field(default_factory=dict)  # OPTIONAL, and "work" of an online row

    def definition(self):
        """What makes two runs of the same point and variant comparable; JSON."""
        names = ["gpu_kv_tokens", "max_model_len", "num_warmup"]
        names += ["context"] if self.kind == "decode" else []
        names += ["work", "duration_s", "warm_up_s", "cool_down_s"] if self.kind == "online" else []
        return {"kind": self.kind, "model": self.model, **{name: self.fields[name] for name in names}}


def read_work(work, where):
    if not isinstance(work, dict) or set(work) - WORK_FIELDS or not {"workload", "num_requests"} <= set(work):
        raise ValueError(f"{where}: a work has workload and num_requests, perhaps name and offset: {work}")
    name = work.get("name") or f"{work['workload']} x {work['num_requests']}"
    return {"name": name, "offset": 0, **work}


def read_variants(row, where):
    variants = []
    for side, allowed in PEER_FIELDS.items():
        for name, settings in row.get(side, {}).items():
            if set(settings) - allowed:
                raise ValueError(f"{where}: a variant of {side} has {', '.join(sorted(allowed))}: {settings}")
            variants.append(Variant(side, name, settings))
    for name, flags in row.get("tandem", {}).items():
        words = shlex.split(row.get("tandem_flags", "")) + shlex.split(flags)
        variants.append(Variant("tandem", name, words))
    names = [variant.name for variant in variants]
    if not variants or len(set(names)) != len(names):
        raise ValueError(f"{where}: variants of {', '.join(SIDES)} have different names, and there is one at least")
    if row["kind"] == "online" and OFFLINE_SIDES & {variant.side for variant in variants}:
        raise ValueError(f"{where}: online rows have no variants of {', '.join(sorted(OFFLINE_SIDES))}")
    return variants


def read_row(row, defaults, where):
    row = {**defaults, **row}
    where = f"{where}, row '{row.get('name')}'"
    if row.get("kind") not in KINDS:
        raise ValueError(f"{where}: kind is one of {', '.join(KINDS)}")
    kind = row["kind"]
    needed = {"name", "kind", "model", POINT_FIELDS[kind], *(["work"] if kind == "online" else [])}
    unknown = set(row) - needed - {*SIDES, *OPTIONAL}
    if needed - set(row) or unknown:
        what = (
            f"lacks {', '.join(sorted(needed - set(row)))}"
            if needed - set(row)
            else f"has {', '.join(sorted(unknown))}"
        )
        raise ValueError(f"{where}: {what}, and rows of kind {kind} have {', '.join(sorted(needed))}")
    given = row[POINT_FIELDS[kind]]
    if not given:
        raise ValueError(f"{where}: {POINT_FIELDS[kind]} is empty")
    if kind in ("offline", "prefill"):
        works = [read_work(work, where) for work in given]
        points = {work["name"]: work for work in works}
    else:
        what = POINT_FIELDS[kind].removesuffix("es" if kind == "decode" else "s")
        points = {f"{value:g}": {what: value} for value in given}
    if len(points) != len(given):
        raise ValueError(f"{where}: two of {POINT_FIELDS[kind]} are the same")
    fields = {name: row.get(name, default) for name, default in OPTIONAL.items()}
    if kind == "online":
        fields["work"] = read_work(row["work"], where)
    return Row(row["name"], kind, row["model"], points, read_variants(row, where), fields)


def read_plan(path):
    """(anchor or None, rows); ValueError says what is wrong where."""
    plan = json.loads(path.read_text())
    where = path.name
    if set(plan) - {"defaults", "anchor", "rows"} or not plan.get("rows"):
        raise ValueError(f"{where}: a plan has rows, and perhaps defaults and an anchor")
    defaults = plan.get("defaults", {})
    # Variants of the anchor are its own.
    bare = {key: value for key, value in defaults.items() if key not in SIDES}
    anchor = read_row(plan["anchor"], bare, where) if "anchor" in plan else None
    rows = [read_row(row, defaults, where) for row in plan["rows"]]
    names = [row.name for row in rows]
    if len(set(names)) != len(names):
        raise ValueError(f"{where}: two rows have the same name")
    return anchor, rows


def only(rows, texts):
    kept = [row for row in rows if not texts or any(text in row.name for text in texts)]
    if not kept:
        raise ValueError(f"no row has {' or '.join(texts)} in its name")
    return kept
