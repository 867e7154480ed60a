"""How heads and tiles fill the device: by hand, and on real traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from inline_snapshot import snapshot

from tests.build import csv, kernel, launch, notes, op, run, tables, trace_file
from tests.queries.test_gemm_calls import H100
from tracekit.run import Run
from tracekit.store import Limits, Selection

if TYPE_CHECKING:
    from pathlib import Path

FLASH = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4> >(int)"
FILL = ("blocks", "head_blocks", "sms", "sm_frac", "resident_blocks", "limits", "waves", "tail_frac", "wave_frac")
SHAPE: dict[str, Any] = {
    "grid": [5, 16, 16], "block": [128, 1, 1], "registers_per_thread": 255, "shared_memory": 49152,
    "est._achieved_occupancy_%": 13,
}  # fmt: skip


def flash(**changed: Any) -> list[dict[str, Any]]:
    """Make a call of flash attention: 5 tiles for each of 16 heads of 16 sequences, unless `changed`."""
    return [
        op("aten::_flash_attention_forward", 0, 20, Input_Dims=[[16, 559, 16, 64]] * 3),
        launch(5, 1),
        kernel(FLASH, 50, 100, 1, **(SHAPE | changed)),
    ]


def called(**changed: Any) -> Run:
    """Open it with its attention call typed by hand."""
    made = tables(flash(**changed), **H100)
    call = {
        "call_id": 0,
        "trace_id": 0,
        "phase": "forward",
        "b": 16,
        "hq": 16,
        "hkv": 16,
        "nq": 559,
        "nk": 559,
        "d_qk": 64,
    }
    made["attention_call"] = pl.DataFrame([call])
    made["kernel"] = made["kernel"].with_columns(call_id=pl.lit(0, pl.Int64))
    return Run("hand.json", {name: rows.lazy() for name, rows in made.items()}, Selection(), Limits())


def test_blocks_waves_and_tail_by_hand() -> None:
    # 5 · 256 = 1,280 blocks; 2 a multiprocessor, 264 at once: 4 waves and 224 of 264 places of a fifth.
    with called() as opened:
        table = opened.query("head_occupancy")
    row = table.frame.row(0, named=True)
    assert (row["heads"], row["blocks"], row["head_blocks"], row["sms"], row["sm_frac"]) == (256, 1280, 5, 132, 1)
    assert (row["resident_blocks"], row["limits"], row["waves"]) == (2, "registers", 5)
    assert row["tail_frac"] == pytest.approx(224 / 264)
    assert row["wave_frac"] == pytest.approx(1280 / (5 * 264))
    assert row["occupancy_frac"] == 2 * 128 / 2048
    assert row["recorded_frac"] == 0.13
    assert row["sizes"] == "B=16 H=16/16 Q=559 K=559 D=64"
    assert notes(table) == snapshot("""\
estimated: Waves take blocks as equally long and alone on the device. A causal mask makes them
differ, a grid for packed sequences has room for the longest of each and leaves blocks without work,
and a persistent kernel (as many blocks as multiprocessors, or a multiple) takes its tiles one after
another: of these tail_frac tells little.
info: Low occupancy is no fault of a fused attention: it holds its tiles in registers and shared
memory. Few blocks (sm_frac below 1) and an empty tail are.
""")


def test_few_blocks_leave_multiprocessors_without_work() -> None:
    with called(grid=[1, 16, 1]) as opened:
        table = opened.query("head_occupancy")
    assert csv(table, *FILL, "occupancy_frac") == snapshot("""\
blocks,head_blocks,sms,sm_frac,resident_blocks,limits,waves,tail_frac,wave_frac,occupancy_frac
16,-,132,0.12121212121212122,2,registers,1,0.06060606060606061,0.06060606060606061,0.007575757575757576
""")


def test_a_last_wave_that_is_full_has_no_tail() -> None:
    with called(grid=[264, 1, 1]) as opened:
        row = opened.query("head_occupancy").frame.row(0, named=True)
    assert (row["waves"], row["tail_frac"], row["wave_frac"], row["head_blocks"]) == (1, 1, 1, None)


def test_0_above_48_kib_is_not_what_was_recorded() -> None:
    with called(**{"shared_memory": 166_912, "est._achieved_occupancy_%": 0}) as opened:
        row = opened.query("head_occupancy").frame.row(0, named=True)
    assert (row["recorded_frac"], row["resident_blocks"], row["limits"]) == (None, 1, "shared memory")


def test_without_registers_blocks_are_told_alone() -> None:
    made = {name: value for name, value in SHAPE.items() if name in {"grid", "block"}}
    events = [op("aten::_flash_attention_forward", 0, 20), launch(5, 1), kernel(FLASH, 50, 100, 1, **made)]
    with run(*events, **H100) as opened:
        table = opened.query("head_occupancy")
    assert csv(table, *FILL, "occupancy_status", "reason") == snapshot("""\
blocks,head_blocks,sms,sm_frac,resident_blocks,limits,waves,tail_frac,wave_frac,occupancy_status,reason
1280,-,132,1.0,-,-,-,-,-,not_derivable,registers and shared memory were not recorded
""")


def test_occupancy_is_the_recorded_one_on_real_traces(traces: Path) -> None:
    compared = 0
    for name in ("h100-qwen1.5-0.5b", "a100-sam-sdpa", "b200-vllm-eager", "h100-nanogpt-before"):
        with trace_file(traces / f"{name}.json.gz") as opened:
            frame = opened.query("head_occupancy", top=0).frame.drop_nulls("recorded_frac")
        assert ((frame["occupancy_frac"] - frame["recorded_frac"]).abs() <= 0.01).all()
        compared += frame["launches"].sum()
    assert compared > 100


def test_on_rocm_registers_were_not_recorded(traces: Path) -> None:
    with trace_file(traces / "mi300x-qwen1.5-0.5b.json.gz") as opened:
        table = opened.query("head_occupancy")
    assert table.frame["waves"].is_null().all()
    assert table.frame["sms"].unique().to_list() == [304]
    assert "registers and shared memory were not recorded" in table.frame["reason"].to_list()
