"""Where in the tree of modules the time goes, on traces that an eye can add up, and on real ones."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import polars as pl
import pytest
from inline_snapshot import snapshot

from tests import independent
from tests.build import Event, ask, csv, frame, kernel, notes, only, step, trace_file, work
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from pathlib import Path

REAL = ["h100-qwen1.5-0.5b.json.gz", "h100-timesformer-math.json.gz"]


def model() -> list[Event]:
    """Make a model of two layers: 5 µs of its own, attention of 10 and 20 µs, an MLP of 40 in the second layer."""
    return [
        frame("nn.Module: Net_0", 0, 300, 1),
        *work("embed", 10, 5, 1, op_name="aten::embedding"),
        frame("nn.Module: Block_0", 30, 100, 2, 1),
        frame("nn.Module: LlamaAttention_0", 40, 50, 3, 2),
        *work("gemm", 50, 10, 2, op_name="aten::mm"),
        frame("nn.Module: Block_1", 150, 140, 4, 1),
        frame("nn.Module: LlamaAttention_1", 160, 40, 5, 4),
        *work("gemm", 170, 20, 3, op_name="aten::mm"),
        frame("nn.Module: LlamaMLP_0", 210, 70, 6, 4),
        *work("gemm", 220, 40, 4, op_name="aten::mm"),
    ]


def test_alike_modules_share_a_row_in_tree_order() -> None:
    table = ask("module_tree", *model())
    assert csv(table) == snapshot("""\
tree,depth,modules,inclusive_ns,own_ns,share_frac,kernels,own_kernels,path
Net,1,1,75000,5000,1.0,4,1,Net
  Block,2,2,70000,0,0.9333333333333333,3,0,Net/Block
    LlamaAttention,3,2,30000,30000,0.4,2,2,Net/Block/LlamaAttention
    LlamaMLP,3,1,40000,40000,0.5333333333333333,1,1,Net/Block/LlamaMLP
""")
    assert notes(table) == snapshot("exact: 100.0 % of the time of all work ran in a recorded module.\n")


def test_each_module_has_a_row_where_they_are_not_folded() -> None:
    table = ask("module_tree", *model(), fold=False)
    assert csv(table, "tree", "depth", "inclusive_ns", "own_ns", "kernels", "own_kernels", "path") == snapshot("""\
tree,depth,inclusive_ns,own_ns,kernels,own_kernels,path
Net_0,1,75000,5000,4,1,Net_0
  Block_0,2,10000,0,1,0,Net_0/Block_0
    LlamaAttention_0,3,10000,10000,1,1,Net_0/Block_0/LlamaAttention_0
  Block_1,2,60000,0,2,0,Net_0/Block_1
    LlamaAttention_1,3,20000,20000,1,1,Net_0/Block_1/LlamaAttention_1
    LlamaMLP_0,3,40000,40000,1,1,Net_0/Block_1/LlamaMLP_0
""")


def test_a_row_that_only_a_later_layer_has_stays_below_its_parent() -> None:
    tree = ask("module_tree", *model(), frame("nn.Module: Head_0", 310, 20, 9)).frame["tree"].to_list()
    assert tree == ["Net", "  Block", "    LlamaAttention", "    LlamaMLP", "Head"]


def test_depth_and_least_share_leave_rows_out_and_change_no_figure() -> None:
    whole = ask("module_tree", *model()).frame
    assert ask("module_tree", *model(), depth=2).frame.equals(whole.filter(whole["depth"] <= 2))
    cut = ask("module_tree", *model(), min_share=0.45).frame
    assert cut.equals(whole.filter(whole["share_frac"] >= 0.45))
    assert 0 < cut.height < whole.height


def test_work_outside_of_modules_lowers_the_shares_and_is_noted() -> None:
    table = ask("module_tree", *model(), kernel("mystery", 400, 75, 99))
    assert table.frame["share_frac"][0] == 0.5
    assert "50.0 % of the time of all work ran in a recorded module" in notes(table)


def test_a_selected_step_alone_is_counted() -> None:
    steps = [step(1, 0, 140), step(2, 140, 200)]
    frame_ = ask("module_tree", *model(), *steps, selection=only(steps=[1])).frame
    assert dict(frame_.select("tree", "inclusive_ns").iter_rows())["Net"] == 15_000
    assert frame_["share_frac"][0] == 1.0


def test_a_module_that_several_call_counts_in_the_first_and_a_note_says_how_much() -> None:
    table = ask(
        "module_tree",
        frame("nn.Module: LlamaAttention_0", 0, 90, 1),
        frame("nn.Module: LlamaRotaryEmbedding_0", 10, 40, 2, 1),
        work("cos", 30, 10, 1, op_name="aten::cos"),
        frame("nn.Module: LlamaAttention_1", 100, 90, 3),
        frame("nn.Module: LlamaRotaryEmbedding_0", 110, 40, 4, 3),
        work("cos", 130, 20, 2, op_name="aten::cos"),
        fold=False,
    )
    assert csv(table, "tree", "inclusive_ns", "own_ns") == snapshot("""\
tree,inclusive_ns,own_ns
LlamaAttention_0,30000,0
  LlamaRotaryEmbedding_0,30000,30000
LlamaAttention_1,0,0
""")
    assert notes(table) == snapshot("""\
exact: 100.0 % of the time of all work ran in a recorded module.
info: Modules that several others call, such as LlamaRotaryEmbedding: 1. Their own time, 0.030 ms,
counts in the first of those.
""")


def test_without_modules_it_says_what_to_record() -> None:
    with pytest.raises(TracekitError) as caught:
        ask("module_tree", *work("gemm", 20, 30, 1, op_name="aten::mm"))
    assert "with_stack=True" in str(caught.value)


@pytest.mark.parametrize("name", REAL)
def test_times_are_those_of_the_frames_around_the_launches_of_a_real_trace(name: str, traces: Path) -> None:
    path = traces / name
    raw = independent.read(path.read_bytes())
    works = independent.device_work(raw)
    inclusive: Counter[str] = Counter()
    own: Counter[str] = Counter()
    kernels: Counter[str] = Counter()
    for piece, _, modules in independent.places_of_work(raw, works):
        inclusive.update(dict.fromkeys(modules, piece.duration))
        kernels.update(modules)
        own.update({modules[-1]: piece.duration} if modules else {})
    with trace_file(path) as opened:
        found = opened.query("module_tree", fold=False).frame
        folded = opened.query("module_tree").frame
    names = pl.col("tree").str.strip_chars()
    busy = found.filter(found["kernels"] > 0)
    assert dict(busy.select(names, "inclusive_ns").iter_rows()) == dict(inclusive)
    assert dict(busy.select(names, "kernels").iter_rows()) == dict(kernels)
    assert dict(busy.filter(busy["own_kernels"] > 0).select(names, "own_ns").iter_rows()) == dict(own)
    assert folded["own_ns"].sum() == found["own_ns"].sum() == sum(own.values())
    assert folded["modules"].sum() == found.height
    roots = found.filter(depth=1)
    assert roots["share_frac"].sum() == pytest.approx(sum(own.values()) / sum(piece.duration for piece in works))
