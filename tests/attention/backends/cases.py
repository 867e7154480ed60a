"""Calls that rules about backends just refuse, and calls that they just do not, by the rule."""

from __future__ import annotations

from typing import Any

Case = dict[str, Any]

FLAT = (8, 64, 64)
WIDE = (2, 8, 1, 64)
TURNED = (32768, 4096, 1, 64)
"""Strides of [2, 8, 64, 64] whose last two dims were exchanged."""
ONE = {"q": (2, 8, 64, 1), "strides": (1024, 128, 2, 2)}
"""A head_dim of 1, cut of one of 2."""


def dims(d: int, v: int | None = None, **rest: Any) -> Case:
    """Return a call with a head_dim, and perhaps another of the values."""
    return {"q": (2, 8, 64, d), "v": (2, 8, 64, d if v is None else v), **rest}


def lengths(queries: int, keys: int, **rest: Any) -> Case:
    return {"q": (2, 8, queries, 64), "k": (2, 8, keys, 64), **rest}


def heads(q: int, k: int, v: int | None = None, **rest: Any) -> Case:
    return {"q": (2, q, 64, 64), "k": (2, k, 64, 64), "v": (2, k if v is None else v, 64, 64), **rest}


def facts(**told: object) -> Case:
    return {"facts": told}


def nested(**rest: Any) -> Case:
    """Return a call of nested tensors, whose shapes are not recorded."""
    told: dict[str, object] = rest.pop("facts", {})
    return {"is_nested": True, "facts": {"nested": True, **told}, **rest}


MASK = {"mask": (2, 1, 64, 64)}
HALF_MASK = {"mask": (64, 64), "mask_strides": (128, 2)}
BATCHES = {"q": (2, 8, 64, 64), "k": (1, 8, 64, 64)}
GRAD = {"needs_grad": True}

CASES: dict[str, tuple[Case, Case]] = {
    # flash
    "FLASH-01": (facts(flash_enabled=False), facts(flash_enabled=True)),
    "FLASH-02": (facts(system="Windows"), facts(system="Linux")),
    "FLASH-03": ({"q": FLAT}, {}),
    "FLASH-03b": ({"q": (1, *WIDE)}, {"q": FLAT}),
    "FLASH-04": ({"mask": (1, 1)}, {}),
    "FLASH-05": (dims(64, 72), dims(64)),
    "FLASH-06": (dims(136), dims(128)),
    "FLASH-07": (dims(257), dims(256)),
    "FLASH-08": ({"sm": 90}, {"sm": 75}),
    "FLASH-09": ({"sm": 70}, {"sm": 75}),
    "FLASH-10": ({"sm": 75}, {"sm": 80}),
    "FLASH-11": ({"sm": 121}, {"sm": 120}),
    "FLASH-12": ({"sm": 122}, {"sm": 121}),
    "FLASH-13": (dims(72, sm=86, **GRAD), dims(64, sm=86, **GRAD)),
    "FLASH-14": (dims(72, sm=89, **GRAD), dims(72, sm=90, **GRAD)),
    "FLASH-15": (dims(200, sm=86, **GRAD), dims(200, sm=86, needs_grad=False)),
    "FLASH-16": (dims(256, sm=86, dropout=0.1, **GRAD), dims(256, sm=86, **GRAD)),
    "FLASH-17": (dims(224, sm=120, **GRAD), dims(225, sm=120, **GRAD)),
    "FLASH-18": (lengths(64, 65, causal=True), lengths(64, 64, causal=True)),
    "FLASH-19": ({"sm": 75}, {"sm": 75, "dtype": "float16"}),
    "FLASH-20": (
        {"dtype": "float8_e4m3fn", "sm": 90},
        {"dtype": "float8_e4m3fn", "sm": 90, **facts(flash_3=True)},
    ),
    "FLASH-19r": ({"dtype": "float32"}, {"dtype": "float16"}),
    "FLASH-21": (BATCHES, {}),
    "FLASH-22": (heads(8, 4, gqa=True), heads(8, 8)),
    "FLASH-23": (heads(8, 4), heads(8, 4, gqa=True)),
    "FLASH-24": (heads(8, 2), heads(8, 1)),
    "FLASH-25": (heads(8, 3, gqa=True), heads(8, 2, gqa=True)),
    "FLASH-26": (lengths(64, 0), lengths(64, 1)),
    "FLASH-27": ({"strides": TURNED}, ONE),
    "FLASH-28": (nested(), {}),
    # flash and efficient on ROCm
    "ROCM-01f": ({"device_name": "AMD Instinct MI100"}, {"device_name": "AMD Instinct MI210"}),
    "ROCM-01e": (facts(arch="gfx1103"), facts(arch="gfx1103", composable_kernels=True)),
    "ROCM-04f": (facts(arch="gfx1151"), facts(arch="gfx1151", aotriton_experimental=True)),
    "ROCM-04e": ({"device_name": "AMD Radeon RX 9060 XT"}, {"device_name": "AMD Radeon RX 9070 XT"}),
    "ROCM-04fb": ({"device_name": "AMD Radeon RX 7900 XTX"}, {}),
    "ROCM-04eb": (facts(arch="gfx1100"), facts(arch="gfx1100", aotriton_experimental=True)),
    "ROCM-02f": (dims(264), dims(256)),
    "ROCM-02e": (dims(264), dims(256)),
    "ROCM-02fb": (dims(513), dims(512)),
    "ROCM-02eb": (dims(512, **facts(arch="gfx1100")), dims(256, **facts(arch="gfx1100"))),
    "ROCM-05f": (heads(8, 4, gqa=True), heads(8, 8)),
    "ROCM-05fb": (heads(8, 4, gqa=True), heads(8, 8)),
    "ROCM-05fc": (heads(8, 4), heads(8, 4, gqa=True)),
    "ROCM-03e": (dims(68), dims(68, dtype="float32")),
    "ROCM-06e": ({**MASK, "mask_dtype": "float32"}, {**MASK, "mask_dtype": "bfloat16"}),
    "ROCM-07e": (nested(), {}),
    "ROCM-08e": ({"dtype": "float32", **facts(composable_kernels=True)}, {"dtype": "float32"}),
    # efficient
    "EFF-01": (facts(efficient_enabled=False), facts(efficient_enabled=True)),
    "EFF-02": ({"sm": 37}, {"sm": 50}),
    "EFF-03a": ({"sm": 100}, {"sm": 90}),
    "EFF-03b": ({"sm": 121}, {"sm": 120}),
    "EFF-03c": ({"sm": 37}, {"sm": 121}),
    "EFF-04": ({"q": FLAT}, {}),
    "EFF-04b": ({"q": (1, *WIDE)}, {"q": FLAT}),
    "EFF-05": (dims(68), dims(64, 72)),
    "EFF-06": (MASK, {}),
    "EFF-07": ({"dropout": 0.1}, {}),
    "EFF-08": (facts(deterministic=True), facts(deterministic=False)),
    "EFF-09a": (dims(128, sm=86), dims(64, sm=86)),
    "EFF-09b": (dims(72, sm=86), dims(72, sm=80)),
    "EFF-10": (BATCHES, {}),
    "EFF-11": (heads(8, 4, gqa=True), heads(8, 8)),
    "EFF-11r": (heads(8, 1), heads(8, 8)),
    "EFF-12": (heads(8, 2), heads(8, 1)),
    "EFF-12b": (heads(8, 4, 2, gqa=True), heads(8, 4, gqa=True)),
    "EFF-13": (lengths(0, 64), lengths(1, 64)),
    "EFF-14": (HALF_MASK, MASK),
    "EFF-15a": ({"dtype": "float64"}, {"sm": 75}),
    "EFF-15b": ({"sm": 75}, {"sm": 75, "dtype": "float32"}),
    "EFF-15r": ({"dtype": "float64"}, {"dtype": "float32"}),
    "EFF-16": (facts(storage_aligned=False), {"sm": 75, **facts(storage_aligned=False)}),
    "EFF-17a": (nested(**GRAD), nested()),
    "EFF-17b": (nested(**GRAD), nested()),
    # cuDNN
    "CUDNN-01": ({}, facts(cudnn_sdpa_enabled=True)),
    "CUDNN-02": ({}, facts(cudnn_enabled=True)),
    "CUDNN-03": (facts(cudnn_built=False), facts(cudnn_built=True)),
    "CUDNN-04a": ({"sm": 75}, {"sm": 90}),
    "CUDNN-04b": ({"sm": 121}, {"sm": 120}),
    "CUDNN-04c": ({"sm": 75}, {"sm": 121}),
    "CUDNN-05": (GRAD, {}),
    "CUDNN-06": ({}, {"all_strides": (32768, 64, 512, 1)}),
    "CUDNN-07": (dims(264), dims(256)),
    "CUDNN-08": (dims(64, 68), dims(64, 72)),
    "CUDNN-09": (dims(64, 136), dims(128)),
    "CUDNN-10": (dims(256, sm=80), dims(256, sm=90)),
    "CUDNN-11": (dims(192, 136, sm=100), dims(192, 128, sm=100)),
    "CUDNN-12": (
        dims(256, sm=107, **facts(cudnn_version=92401)),
        dims(256, sm=103, **facts(cudnn_version=92401)),
    ),
    "CUDNN-13": (dims(192, sm=90, **GRAD), dims(192, 128, sm=90, **GRAD)),
    "CUDNN-14": ({"dtype": "float32"}, {"dtype": "float16"}),
    "CUDNN-15a": (nested(), {}),
    "CUDNN-15b": (
        nested(sm=100, facts={"cudnn_sdpa_nested": True}),
        nested(sm=90, facts={"cudnn_sdpa_nested": True}),
    ),
    "CUDNN-15d": (nested(sm=103), nested(sm=103, facts={"cudnn_sdpa_nested": True})),
    "CUDNN-15c": (nested(**GRAD), nested()),
    "CUDNN-16": ({"mask": (8, 64, 64)}, {"mask": (1, 8, 64, 64)}),
    "CUDNN-17": ({"strides": TURNED}, ONE),
    "CUDNN-18": (facts(deterministic=True), facts(deterministic=False)),
    "CUDNN-19": (lengths(0, 64), lengths(1, 64)),
    "CUDNN-20": (lengths(1, 64), lengths(2, 64)),
    "CUDNN-21": (lengths(1, 64, dropout=0.125), lengths(1, 64)),
    "CUDNN-22": (lengths(1, 64, sm=100), lengths(1, 64, sm=100, **facts(cudnn_version=92401))),
    "CUDNN-23": (
        {"dropout": 0.5, **facts(cudnn_version=91300)},
        {"dropout": 0.5, **facts(cudnn_version=91400)},
    ),
    "CUDNN-24": ({"dropout": 0.1}, {"dropout": 0.0625}),
    "CUDNN-25": ({"q": (65536, 1, 8, 64)}, {"q": (65535, 1, 8, 64)}),
    "CUDNN-26a": (BATCHES, {}),
    "CUDNN-26b": (heads(8, 4), heads(8, 4, 2, gqa=True)),
    "CUDNN-26c": (heads(8, 3, gqa=True), heads(8, 1)),
    "CUDNN-27": (
        lengths(64, 65, **facts(cudnn_version=8905)),
        lengths(64, 65, **facts(cudnn_version=8906)),
    ),
    # math and what vendors put in its place
    "MATH-01": (facts(math_enabled=False), facts(math_enabled=True)),
    "MPS-01": (GRAD, {"needs_grad": False}),
    "MPS-02": ({"dropout": 0.1}, {}),
    "MPS-03": (nested(), {}),
    "MPS-04": ({"strides": TURNED}, {}),
    "MPS-05": (heads(8, 4, gqa=True), heads(8, 8)),
    # nested tensors
    "NT-08": (nested(gqa=True), nested()),
    # flash on the CPU
    "CPU-02": (facts(flash_enabled=False), facts(flash_enabled=True)),
    "CPU-03": (nested(), {}),
    "CPU-04": ({"dropout": 0.001}, {}),
    "CPU-05": ({"q": FLAT}, {}),
    "CPU-05b": ({"q": (1, *WIDE)}, {"q": FLAT}),
    "CPU-06": (MASK, {}),
    "CPU-07": ({"mask": (1, 64, 64)}, {"mask": (64, 64)}),
    "CPU-08": (HALF_MASK, MASK),
    "CPU-09": (dims(64, 32), dims(7)),
    "CPU-10": (BATCHES, {}),
    "CPU-11": (heads(8, 4, gqa=True), heads(8, 8)),
    "CPU-12": (heads(8, 4), heads(8, 4, gqa=True)),
    "CPU-12b": (heads(8, 4, 2, gqa=True), heads(8, 4, gqa=True)),
    "CPU-13": (heads(8, 2), heads(8, 1)),
    "CPU-14": (lengths(0, 64), lengths(1, 64)),
    "CPU-15": (ONE, {"q": (2, 8, 64, 1)}),
    "CPU-16a": ({"dtype": "float16"}, {"dtype": "float64"}),
    "CPU-16b": ({"dtype": "float8_e5m2"}, {"dtype": "float16"}),
}
"""A call that the rule just refuses, and one that it just does not."""

BOUNDS: list[tuple[str, Case, Case]] = [
    ("FLASH-06", dims(60), dims(56)),
    ("FLASH-08", {"sm": 70}, {"sm": 89}),
    ("FLASH-09", {"sm": 100}, {"sm": 90}),
    ("FLASH-10", {"sm": 100}, {"sm": 90}),
    ("FLASH-11", {"sm": 75}, {"sm": 80}),
    ("FLASH-12", {"sm": 75}, {"sm": 80}),
    ("FLASH-13", dims(65, sm=120, **GRAD), dims(65, sm=80, **GRAD)),
    ("FLASH-14", dims(65, sm=86, **GRAD), dims(64, sm=86, **GRAD)),
    ("FLASH-15", dims(193, sm=89, **GRAD), dims(192, sm=89, **GRAD)),
    ("FLASH-16", dims(193, sm=86, **GRAD), dims(192, sm=86, **GRAD)),
    ("FLASH-16", dims(224, sm=89, **GRAD), dims(225, sm=89, **GRAD)),
    ("FLASH-16", dims(224, sm=89, **GRAD), dims(224, sm=90, **GRAD)),
    ("FLASH-17", dims(256, sm=121, dropout=0.1, **GRAD), dims(256, sm=121, **GRAD)),
    ("FLASH-18", lengths(65, 64, causal=True), lengths(65, 64)),
    ("FLASH-19", {"dtype": "float32"}, {"dtype": "float16"}),
    ("FLASH-20", {"dtype": "float8_e4m3fn", "sm": 89, **facts(flash_3=True)}, {"dtype": "bfloat16", "sm": 89}),
    ("FLASH-20", {"sm": 75}, {"sm": 75, "dtype": "float16"}),
    ("FLASH-25", heads(8, 4, 2, gqa=True), heads(8, 4, 2)),
    ("FLASH-26", lengths(0, 64), lengths(1, 64)),
    ("EFF-03a", {"sm": 37}, {"sm": 50}),
    ("EFF-03b", {"sm": 37}, {"sm": 50}),
    ("EFF-03c", {"sm": 122}, {"sm": 50}),
    ("EFF-05", {"q": (2, 8, 64, 64), "k": (2, 8, 64, 72)}, {"q": (2, 8, 64, 72)}),
    ("EFF-05", dims(66, dtype="float32"), dims(68, dtype="float32")),
    ("EFF-05", dims(0, dtype="float32", sm=75), dims(1, dtype="float32", sm=75)),
    ("EFF-05", dims(4, dtype="float16", sm=70), dims(4, dtype="float16", sm=61)),
    ("EFF-12b", heads(8, 3, gqa=True), heads(8, 2, gqa=True)),
    ("EFF-13", lengths(64, 0), lengths(64, 1)),
    ("EFF-14", ONE, {}),
    ("EFF-15b", {"dtype": "float64"}, {"dtype": "float16", "sm": 75}),
    ("ROCM-03e", dims(66, dtype="float32"), dims(72)),
    ("ROCM-03e", dims(64, 72), dims(64)),
    ("CUDNN-04a", {"sm": 100}, {"sm": 80}),
    ("CUDNN-04b", {"sm": 75}, {"sm": 80}),
    ("CUDNN-04c", {"sm": 122}, {"sm": 80}),
    ("CUDNN-06", {"all_strides": (65536, 64, 1024, 1)}, {"all_strides": (98304, 64, 1536, 1)}),
    ("CUDNN-07", dims(60), dims(56)),
    ("CUDNN-07", dims(136, **facts(cudnn_version=8902)), dims(128, **facts(cudnn_version=8902))),
    ("CUDNN-08", dims(60), dims(56)),
    ("CUDNN-10", dims(264, sm=90), dims(128, sm=80)),
    ("CUDNN-10", dims(136, sm=90, **facts(cudnn_version=90900)), dims(136, sm=90, **facts(cudnn_version=91000))),
    ("CUDNN-11", dims(192, 128, sm=90, **facts(cudnn_version=90900)), dims(192, 128, sm=90)),
    ("CUDNN-11", dims(192, 128, sm=120), dims(192, 128, sm=103)),
    ("CUDNN-11", dims(192, 128, sm=100, **facts(cudnn_version=91002)), dims(128, sm=100)),
    ("CUDNN-12", dims(136, sm=90, **facts(cudnn_version=92200)), dims(136, sm=90, **facts(cudnn_version=92201))),
    ("CUDNN-12", dims(257, sm=90), dims(256, sm=90)),
    ("CUDNN-12", dims(192, 128, sm=80, **facts(cudnn_version=91002)), dims(192, 128, sm=80)),
    ("CUDNN-13", dims(136, sm=90, **GRAD), dims(128, sm=90, **GRAD)),
    ("CUDNN-13", dims(248, sm=90, **GRAD), dims(256, sm=90, **GRAD)),
    ("CUDNN-16", {**MASK, **facts(mask_requires_grad=True)}, MASK),
    ("CUDNN-16", {"mask": (2, 8, 64, 32)}, {"mask": (2, 8, 64, 1)}),
    ("CUDNN-17", HALF_MASK, MASK),
    ("CUDNN-20", lengths(64, 1), lengths(64, 2)),
    ("CUDNN-21", lengths(64, 1), lengths(64, 2)),
    ("CUDNN-22", lengths(1, 64, sm=119), lengths(1, 64, sm=120)),
    ("CUDNN-22", lengths(1, 64, sm=100), lengths(2, 64, sm=100)),
    (
        "CUDNN-22",
        lengths(1, 64, sm=100, **facts(cudnn_version=92500)),
        lengths(1, 64, sm=100, **facts(cudnn_version=92501)),
    ),
    (
        "CUDNN-22",
        lengths(1, 64, sm=100, **facts(cudnn_version=91900)),
        lengths(1, 64, sm=100, **facts(cudnn_version=91899)),
    ),
    ("CUDNN-23", {"dropout": 0.5, **facts(cudnn_version=91101)}, {"dropout": 0.5, **facts(cudnn_version=91100)}),
    ("CUDNN-25", {"q": (1, 65536, 8, 64)}, {"q": (1, 65535, 8, 64)}),
    ("CUDNN-26b", heads(8, 3, gqa=True), heads(8, 4, gqa=True)),
    ("CUDNN-26c", heads(8, 2), heads(8, 2, gqa=True)),
    ("CUDNN-27", facts(cudnn_version=8902), facts(cudnn_version=8903)),
    (
        "CUDNN-27",
        {"dropout": 0.1, **facts(cudnn_version=8905)},
        {"dropout": 0.1, **facts(cudnn_version=8906)},
    ),
    ("CUDNN-27", lengths(63, 64, **facts(cudnn_version=8906)), lengths(63, 64, **facts(cudnn_version=90000))),
    (
        "CUDNN-27",
        lengths(65, 64, dropout=0.1, **facts(cudnn_version=8906)),
        lengths(64, 64, dropout=0.1, **facts(cudnn_version=8906)),
    ),
    ("CPU-07", {**MASK, **facts(mask_requires_grad=True)}, MASK),
    ("CPU-07", {"mask": (2, 4, 64, 64)}, {"mask": (2, 8, 64, 64)}),
    ("CPU-12b", heads(8, 3, gqa=True), heads(8, 3)),
    ("CPU-14", lengths(64, 0), lengths(64, 1)),
    ("CPU-15", {"strides": TURNED}, {}),
    ("FLASH-03b", {"q": (1, *WIDE)}, {}),
    ("FLASH-16", dims(225, sm=89, dropout=0.1, **GRAD), dims(225, sm=90, dropout=0.1, **GRAD)),
    ("FLASH-17", dims(193, sm=121, **GRAD), dims(192, sm=121, **GRAD)),
    ("FLASH-17", dims(225, sm=120, dropout=0.1, **GRAD), dims(225, sm=122, dropout=0.1, **GRAD)),
    ("FLASH-18", lengths(64, 1, causal=True), nested(causal=True)),
    ("FLASH-20", {"dtype": "float32"}, {}),
    ("FLASH-21", BATCHES, nested()),
    ("ROCM-01f", facts(arch="gfx1103"), facts(arch="gfx1103", composable_kernels=True)),
    ("ROCM-04f", facts(arch="gfx1200"), facts(arch="gfx1200", composable_kernels=True)),
    ("ROCM-04e", facts(arch="gfx1101"), facts(arch="gfx1101", composable_kernels=True)),
    ("ROCM-02f", dims(257), dims(256)),
    ("ROCM-02e", dims(257), dims(256)),
    ("ROCM-02fb", dims(257, **facts(arch="gfx1151")), dims(256, **facts(arch="gfx1151"))),
    ("ROCM-02eb", dims(513), dims(512)),
    ("EFF-04b", {"q": (1, *WIDE)}, {}),
    ("EFF-09a", dims(128, sm=86), dims(128, sm=89)),
    ("EFF-09b", dims(65, sm=89), dims(64, sm=89)),
    ("EFF-10", BATCHES, nested()),
    ("CUDNN-07", dims(136, **facts(cudnn_version=8907)), dims(136, **facts(cudnn_version=90000))),
    ("CUDNN-09", dims(129), dims(128)),
    ("CUDNN-10", dims(257, sm=90), dims(256, sm=90)),
    ("CUDNN-10", dims(129, sm=89), dims(136, sm=90)),
    ("CUDNN-11", dims(257, sm=90), dims(256, sm=90)),
    ("CUDNN-11", dims(129, sm=103), dims(128, sm=103)),
    ("CUDNN-11", dims(129, sm=90, **facts(cudnn_version=90999)), dims(129, sm=90, **facts(cudnn_version=91000))),
    *(
        (rule, dims(192, 128, sm=sm, **facts(cudnn_version=91099)), dims(192, 128, sm=sm, **facts(cudnn_version=91100)))
        for rule, sm in (("CUDNN-11", 100), ("CUDNN-11", 103), ("CUDNN-12", 80), ("CUDNN-12", 90))
    ),
    *(
        (
            "CUDNN-12",
            dims(256, sm=sm, **facts(cudnn_version=least - 1)),
            dims(256, sm=sm, **facts(cudnn_version=least)),
        )
        for sm, least in ((90, 92201), (100, 92201), (101, 92201), (103, 92201), (107, 92501))
    ),
    ("CUDNN-12", dims(257, sm=107, **facts(cudnn_version=92501)), dims(128, sm=107)),
    ("CUDNN-12", dims(129, sm=89), dims(128, sm=89)),
    ("CUDNN-13", dims(129, sm=90, **GRAD), dims(129, sm=90)),
    ("CUDNN-17", {"q": (2, 8, 64, 2), "strides": (2048, 256, 4, 2)}, ONE),
    (
        "CUDNN-22",
        lengths(1, 64, sm=100, **facts(cudnn_version=92402)),
        lengths(1, 64, sm=100, **facts(cudnn_version=92401)),
    ),
    ("CUDNN-23", {"dropout": 0.5, **facts(cudnn_version=91399)}, {"dropout": 0.5, **facts(cudnn_version=91400)}),
    ("CUDNN-27", lengths(63, 64, **facts(cudnn_version=89999)), lengths(63, 64, **facts(cudnn_version=90000))),
    (
        "CUDNN-27",
        lengths(65, 64, dropout=0.1, **facts(cudnn_version=89999)),
        lengths(65, 64, dropout=0.1, **facts(cudnn_version=90000)),
    ),
    ("CPU-05b", {"q": (1, *WIDE)}, {}),
]
"""The other ends of rules that have several."""

UNCONDITIONAL = {"OVR-01", "XPU-01", "XPU-02"}
"""Rules that hold whatever the call is."""

UNDECIDED = {"CUDNN-15e", "NT-01", "NT-02f", "NT-02e"}
"""Rules on what a trace can't show of nested tensors: they leave the backend not known."""

LINT_CASES: dict[str, tuple[Case, Case]] = {
    "LINT-01": (lengths(1, 64, causal=True), lengths(64, 64, causal=True)),
    "LINT-02": (
        lengths(8, 64, causal=True, ran="flash", **facts(wrapper=False)),
        lengths(8, 64, causal=True, ran="flash"),
    ),
    "LINT-03": ({"v": (2, 8, 63, 64)}, {}),
    "SEL-01": ({"value_dtype": "float32"}, {}),
    "SEL-01m": ({**MASK, "mask_dtype": "float32"}, {**MASK, "mask_dtype": "bfloat16"}),
    "SEL-01n": ({**MASK, "mask_dtype": "float64"}, {**MASK, "mask_dtype": "float32"}),
    "SEL-02": ({**MASK, "causal": True}, MASK),
    "SEL-03": (nested(mask=(64, 64)), MASK),
    "MATH-02": (heads(8, 3, gqa=True), heads(8, 2, gqa=True)),
    "MATH-PERF": ({"ran": "math"}, {"ran": "math", "dtype": "float32"}),
    "EXIT-01": ({"q": (0, 8, 64, 64)}, {}),
}
"""A call that the lint is about, and one that it is not."""
