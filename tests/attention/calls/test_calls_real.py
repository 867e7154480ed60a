"""Attention calls of real traces, against counting them in the raw JSON."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests import independent
from tests.conftest import TRACES
from tracekit.loading import tables_of

if TYPE_CHECKING:
    from pathlib import Path

WRAPPER = "aten::scaled_dot_product_attention"
BACKENDS = {
    "aten::_scaled_dot_product_flash_attention": ("flash", 4),
    "aten::_scaled_dot_product_efficient_attention": ("efficient", 6),
}
FLASH_3 = {"flash_attn_3::fwd": (25, 13), "flash_attn_3::bwd": (17, 14)}
"""Where window and longest sequence stand."""
FILES = sorted(TRACES.rglob("*.json*"))
pytestmark = pytest.mark.skipif(not FILES, reason="the shared traces are not here")


def inputs(event: dict[str, Any]) -> tuple[list[Any], list[Any], list[Any]]:
    args = independent.args(event)
    return args["Input Dims"], args["Input type"], args["Concrete Inputs"]


def sdpa_calls(events: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Count the backends' ops, with sizes and FLOPs by a formula written out here."""
    found: Counter[tuple[Any, ...]] = Counter()
    for event in independent.complete(events, independent.OPS):
        if event["name"] not in BACKENDS:
            continue
        backend, causal_at = BACKENDS[event["name"]]
        dims, types, concrete = inputs(event)
        (b, hq, nq, d), (_, hkv, nk, _), (_, _, _, d_v) = dims[:3]
        is_causal = concrete[causal_at] == "True"
        pairs = sum(min(nk, query + 1) for query in range(nq)) if is_causal else nq * nk
        dtype = {"float": "float32", "c10::BFloat16": "bfloat16"}[types[0]]
        found[backend, b, hq, hkv, nq, nk, d, d_v, dtype, is_causal, 2 * hq * b * pairs * (d + d_v)] += 1
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_sdpa_call_is_one_row_of_its_sizes(path: Path) -> None:
    data = path.read_bytes()
    if b"scaled_dot_product" not in data and path.suffix != ".gz":
        pytest.skip("no SDPA in it")
    try:
        events = independent.read(data)
    except ValueError:
        pytest.skip("only a salvaging reader can read it")
    expected = sdpa_calls(events)
    if not expected:
        pytest.skip("no SDPA in it")
    calls = tables_of(data, path.name)["attention_call"].filter(pl.col("implementation") == "sdpa")
    names = ("backend", "b", "hq", "hkv", "nq", "nk", "d_qk", "d_v", "dtype", "is_causal", "flops")
    assert Counter(calls.select(names).iter_rows()) == expected
    wrappers = {event["name"] for event in independent.complete(events, independent.OPS)}
    assert set(calls["source"]) == {"op"}
    assert WRAPPER in wrappers or path.name == "mi300x-compile-triton.json.gz"


@pytest.mark.parametrize("name", ["h100-nanogpt-before.json.gz", "h100-nanogpt-8ranks/rank0.json.gz"])
def test_every_flash_attention_3_call_is_one_row_with_its_window(name: str) -> None:
    path = TRACES / name
    expected: Counter[tuple[Any, ...]] = Counter()
    for event in independent.complete(independent.read(path.read_bytes()), independent.OPS):
        if event["name"] in FLASH_3:
            window, longest = FLASH_3[event["name"]]
            dims, _, concrete = inputs(event)
            tokens, heads, dim = dims[0]
            phase = "backward" if event["name"].endswith("bwd") else "forward"
            expected[phase, tokens, heads, dim, int(concrete[longest]), int(concrete[window]) + 1] += 1
    calls = tables_of(path.read_bytes(), path.name)["attention_call"]
    assert set(calls["implementation"]) == {"flash_attn_3"}
    assert Counter(calls.select("phase", "tokens_q", "hq", "d_qk", "nk", "window").iter_rows()) == expected
    # Lengths are not recorded: the bound counts at most `window` keys a query.
    assert calls["pairs_status"].unique().to_list() == ["estimated"]
    assert (calls["pairs_least"] <= calls["pairs"]).all()
    assert (calls["pairs"] < calls["tokens_q"] * calls["window"]).all()


def test_chains_are_found_with_their_sequences_and_heads() -> None:
    calls = tables_of((TRACES / "a100-sam-math.json.gz").read_bytes(), "t")["attention_call"]
    assert Counter(calls.select("source", "b", "hq", "nq", "nk", "d_qk").iter_rows()) == {
        ("chain", 25, 16, 196, 196, 80): 28,
        ("chain", 1, 16, 4096, 4096, 80): 4,
        ("chain", 64, 8, 7, 7, 32): 32,
        ("chain", 64, 8, 7, 4096, 16): 48,
        ("chain", 64, 8, 4096, 7, 16): 32,
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_kernels_and_calls_agree(path: Path) -> None:
    """Each kernel is of one call at most, calls sum up their kernels, and what is not known has no value."""
    tables = tables_of(path.read_bytes(), path.name)
    calls, kernels = tables["attention_call"], tables["kernel"]
    assert calls["call_id"].to_list() == list(range(calls.height))
    own = kernels.filter(pl.col("call_id").is_not_null())
    sums = own.group_by("call_id").agg(pl.len().cast(pl.Int64).alias("kernels"), pl.col("dur_ns").sum())
    told = calls.filter(pl.col("kernels") > 0).select("call_id", "kernels", "device_ns")
    assert sums.sort("call_id").rows() == told.sort("call_id").rows()
    for figure in ("pairs", "flops", "bytes"):
        status = calls[f"{figure}_status"]
        assert ((status == "not_derivable") == calls[figure].is_null()).all()
        assert set(status) <= {"exact", "estimated", "not_derivable"}
        assert (calls[figure].drop_nulls() >= 0).all()
    assert set(calls["phase"]) <= {"forward", "backward", "recompute"}
    fused = kernels.filter((pl.col("family") == "aten_flash_attention_2") & pl.col("op_id").is_not_null())
    assert not fused["call_id"].null_count()


def test_json_of_shapes_is_what_the_op_table_holds() -> None:
    """The independent count reads the same arguments as the product, which has them as text."""
    ops = tables_of((TRACES / "h100-bert-small.json.gz").read_bytes(), "t")["op"]
    dims = ops.filter(pl.col("name") == WRAPPER)["input_dims"].to_list()
    assert [json.loads(text)[0] for text in dims] == [[1, 8, 141, 64]] * 4


def test_naive_decode_with_grouped_heads_is_decode(traces: Path) -> None:
    # By hand: view [16, 128] as [8, 2, 128]; keys [17, 8, 128] have their first dims exchanged.
    made = tables_of((traces / "rtx4080-nanovllm-decode.json").read_bytes(), "decode.json")["attention_call"]
    names = ("mode", "b", "hq", "hkv", "nq", "nk", "d_qk")
    assert made.filter(source="chain").select(names).rows() == [("decode", 1, 16, 8, 1, 17, 128)]


def test_writing_the_cache_is_no_part_of_a_vendors_attention(traces: Path) -> None:
    # By hand: 36 layers, each with a kernel that writes the cache and one that attends, in one op.
    made = tables_of((traces / "b200-vllm-eager.json.gz").read_bytes(), "b200.json.gz")
    kernels = made["kernel"]
    written = kernels.filter(role="attention.kv_cache")
    assert (written.height, written["call_id"].null_count()) == (36, 36)
    core = kernels.filter(role="attention.core")
    calls = made["attention_call"]
    assert (calls["kernels"].sum(), calls["device_ns"].sum()) == (36, core["dur_ns"].sum())
