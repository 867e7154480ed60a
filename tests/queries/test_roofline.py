"""Attention calls and products against the peaks of their device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from inline_snapshot import snapshot

from tests.build import csv, kernel, launch, notes, op, run, tables, trace_file
from tests.queries.test_gemm_calls import BF16, H100, product
from tracekit.run import Run
from tracekit.store import Limits, Selection

if TYPE_CHECKING:
    from pathlib import Path

FLASH = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4> >(int)"
CALL: dict[str, Any] = {
    "call_id": 0, "trace_id": 0, "op_id": 0, "phase": "forward", "implementation": "sdpa", "backend": "flash",
    "b": 16, "hq": 16, "hkv": 16, "nq": 559, "nk": 559, "d_qk": 64, "d_v": 64, "dtype": "bfloat16", "is_causal": True,
    "window": None, "is_varlen": False, "kernels": 1, "device_ns": 100_000, "host_ns": 20_000,
    "flops": 2 * 16 * 16 * (559 * 560 // 2) * 128, "flops_status": "exact",
    "bytes": 4 * 16 * 16 * 559 * 64 * 2, "bytes_status": "exact",
}  # fmt: skip

KINDS = {"hq": pl.Int64, "window": pl.Int64, "flops": pl.Int64, "bytes": pl.Int64, "dtype": pl.String}


def called(known: dict[str, Any] = H100, **changed: Any) -> Run:
    """Open a trace with one attention call typed by hand."""
    events = [op("aten::_flash_attention_forward", 0, 20), launch(5, 1), kernel(FLASH, 50, 100, 1)]
    made = tables(*events, **known)
    made["attention_call"] = pl.DataFrame([CALL | changed], schema_overrides=KINDS)
    made["kernel"] = made["kernel"].with_columns(call_id=pl.lit(0, pl.Int64))
    return Run("hand.json", {name: rows.lazy() for name, rows in made.items()}, Selection(), Limits())


def test_an_attention_call_by_hand() -> None:
    # 16 · 16 heads, 559 · 560 / 2 pairs, 256 operations each: 10.26 GFLOP in 100 µs; 73.3 MB.
    with called() as opened:
        table = opened.query("roofline")
    row = table.frame.row(0, named=True)
    assert (row["kind"], row["name"], row["flop_count"]) == ("attention", "sdpa/flash", "causal")
    assert row["call_flops"] == 10_257_694_720
    assert row["achieved_flops_per_s"] == pytest.approx(102.5769472e12)
    assert row["achieved_bytes_per_s"] == pytest.approx(732.69248e9)
    assert row["peak_frac"] == pytest.approx(102.5769472 / 989.5)
    assert row["roof_frac"] == pytest.approx(732.69248 / 3350)
    assert row["intensity_flops_per_byte"] == pytest.approx(140)
    assert (row["bound"], row["share_frac"]) == ("neither", 1)
    assert csv(table, "sizes", "dtype", "calls", "work_ns", "flops_status") == snapshot("""\
sizes,dtype,calls,work_ns,flops_status
B=16 H=16/16 Q=559 K=559 D=64,bfloat16,1,100000,exact
""")


@pytest.mark.parametrize(
    ("changed", "count"),
    [
        ({"is_causal": False}, "full"),
        ({"window": 128}, "window"),
        ({"is_varlen": True}, "packed"),
        ({"flops": None, "flops_status": "not_derivable"}, None),
    ],
)
def test_the_count_that_a_rate_uses_is_said(changed: dict[str, Any], count: str | None) -> None:
    with called(**changed) as opened:
        row = opened.query("roofline").frame.row(0, named=True)
    assert row["flop_count"] == count
    assert (row["achieved_flops_per_s"] is None) == (count is None)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"flops": None, "bytes": None}, "its operations are not derivable"),
        ({"flops": None, "bytes": None, "hq": None}, "the shapes of its inputs are not known"),
        ({"dtype": None}, "in which format it multiplies is not known"),
        ({"dtype": "float64"}, "no peak of float64 is known of this device"),
        ({"dtype": "float8_e4m3fn"}, None),
    ],
)
def test_what_is_missing_is_said(changed: dict[str, Any], reason: str | None) -> None:
    with called(**changed) as opened:
        row = opened.query("roofline").frame.row(0, named=True)
    assert row["reason"] == reason
    assert row["work_ns"] == 100_000


def test_products_and_attention_are_rows_of_one_answer() -> None:
    with run(product(BF16, 200, 200, 1, [4096, 4096], [4096, 4096]), **H100) as opened:
        table = opened.query("roofline")
    assert csv(table, "kind", "name", "sizes", "flop_count", "dtype", "calls") == snapshot("""\
kind,name,sizes,flop_count,dtype,calls
gemm,aten::mm,B=1 M=4096 N=4096 K=4096,2 B M N K,bfloat16,1
""")
    assert "No attention call was found" in notes(table)


def test_signatures_by_op_add_up_to_those_by_sizes() -> None:
    square = [4096, 4096]
    added = product(BF16, 900, 300, 2, [4096], square, square, op_name="aten::addmm")
    text = "select name, m, calls, work_ns, bound from roof_signature({}) order by work_ns"
    with run(product(BF16, 200, 200, 1, square, square), added, **H100) as opened:
        by_op, by_sizes = (opened.sql(text.format(whether)) for whether in ("true", "false"))
    assert csv(by_op) == snapshot("""\
name,m,calls,work_ns,bound
aten::mm,4096,1,200000,compute
aten::addmm,4096,1,300000,launch
""")
    assert csv(by_sizes) == snapshot("""\
name,m,calls,work_ns,bound
-,4096,2,500000,launch
""")


def test_the_format_of_the_kernel_counts_before_that_of_the_inputs() -> None:
    with called() as opened:
        made = {name: rows.collect() for name, rows in opened.tables.items()}
    made["kernel"] = made["kernel"].with_columns(compute_dtype=pl.lit("float8"))
    with Run("hand.json", {name: rows.lazy() for name, rows in made.items()}, Selection(), Limits()) as opened:
        row = opened.query("roofline").frame.row(0, named=True)
    assert (row["dtype"], row["peak_flops_per_s"]) == ("float8", 1979e12)


@pytest.mark.parametrize(
    "name", ["h100-qwen1.5-0.5b", "mi300x-qwen1.5-0.5b", "h100-nanogpt-before", "h100-timesformer-math"]
)
def test_nothing_is_faster_than_its_device_on_real_traces(traces: Path, name: str) -> None:
    with trace_file(traces / f"{name}.json.gz") as opened:
        frame = opened.query("roofline", top=0).frame
    assert frame["roof_frac"].drop_nulls().len() > 3
    assert frame["roof_frac"].max() < 1  # type: ignore[operator]
    assert frame["suspicion"].is_null().all()
    known = frame.drop_nulls("roof_frac")
    rates = known["calls"] * known["call_flops"] / known["work_ns"] * 1e9
    assert (rates / known["achieved_flops_per_s"] - 1).abs().max() < 1e-6  # type: ignore[operator]
    assert (known["achieved_flops_per_s"] / known["peak_flops_per_s"] - known["peak_frac"]).abs().max() < 1e-9  # type: ignore[operator]
