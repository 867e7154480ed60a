"""What modules cost in each pass, on traces small enough to add up by eye, and on real ones."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from inline_snapshot import snapshot

from tests import independent
from tests.build import Event, annotation, ask, csv, frame, kernel, launch, notes, only, op, trace_file, work

if TYPE_CHECKING:
    from pathlib import Path

BACKWARD = "autograd::engine::evaluate_function: MmBackward0"


def trained() -> list[Event]:
    """Make 20 µs forward and 50 µs backward in an MLP, 10 µs forward in a norm, and 40 µs in the optimizer."""
    return [
        frame("nn.Module: LlamaMLP_0", 0, 60, 1),
        op("aten::mm", 10, 10, Sequence_number=7),
        launch(12, 1),
        kernel("gemm", 20, 20, 1),
        frame("nn.Module: LlamaRMSNorm_0", 70, 60, 2),
        *work("norm", 90, 10, 2, op_name="aten::rsqrt"),
        op(BACKWARD, 150, 20, Sequence_number=7),
        op("aten::mm", 152, 10),
        launch(155, 3),
        kernel("gemm", 160, 50, 3),
        annotation("Optimizer.step#AdamW.step", 300, 30),
        *work("multi_tensor_apply_kernel", 320, 40, 4, op_name="aten::_foreach_add_"),
    ]


def recomputed() -> list[Event]:
    """Make a backward pass that runs the 15 µs of a forward op again, as reentrant checkpointing does."""
    return [
        op("autograd::engine::evaluate_function: CheckpointFunctionBackward", 400, 100),
        op("CheckpointFunctionBackward", 402, 90),
        frame("nn.Module: LlamaMLP_0", 404, 40, 9),
        op("aten::mm", 410, 10, Sequence_number=9),
        launch(412, 5),
        kernel("gemm", 420, 15, 5),
        op(BACKWARD, 460, 20, Sequence_number=9),
        op("aten::mm", 462, 10),
        launch(465, 6),
        kernel("gemm", 470, 25, 6),
    ]


def test_each_class_has_its_time_in_both_passes_and_their_ratio() -> None:
    table = ask("forward_backward", *trained())
    assert csv(table) == snapshot("""\
module_class,role,forward_ns,backward_ns,recompute_ns,backward_frac,recompute_frac,share_frac,forward_kernels,backward_kernels,recompute_kernels
LlamaMLP,-,20000,50000,0,2.5,-,0.875,1,1,0
LlamaRMSNorm,-,10000,0,0,-,-,0.125,1,0,0
""")
    assert notes(table) == snapshot(
        "exact: 33.3 % of the time of all work is in other phases (optimizer, other) and not here.\n"
    )


def test_recomputation_is_counted_by_itself() -> None:
    table = ask("forward_backward", *trained(), *recomputed())
    columns = ("forward_ns", "backward_ns", "recompute_ns", "backward_frac", "recompute_frac", "recompute_kernels")
    assert csv(table, "module_class", *columns) == snapshot("""\
module_class,forward_ns,backward_ns,recompute_ns,backward_frac,recompute_frac,recompute_kernels
LlamaMLP,20000,75000,15000,3.75,0.75,1
LlamaRMSNorm,10000,0,0,-,-,0
""")
    assert "Recomputation is counted by itself: 0.015 ms, 50.0 % of the forward time." in notes(table)


def test_recomputation_alone_is_held_against_no_forward_time() -> None:
    table = ask("forward_backward", *trained(), *recomputed(), selection=only(phases=["recompute"]))
    assert table.frame["recompute_ns"].to_list() == [15000]
    assert "Recomputation" not in notes(table)


def test_by_role_it_needs_no_modules() -> None:
    events = [event for event in trained() if event["cat"] != "python_function"]
    table = ask("forward_backward", *events, by="role")
    assert csv(table, "module_class", "role", "forward_ns", "backward_ns") == snapshot("""\
module_class,role,forward_ns,backward_ns
-,other,30000,50000
""")
    assert "-p by=role" in notes(ask("forward_backward", *events))


def test_inference_has_no_ratio_and_a_note_says_why() -> None:
    table = ask(
        "forward_backward", frame("nn.Module: LlamaMLP_0", 0, 60, 1), work("gemm", 20, 30, 1, op_name="aten::mm")
    )
    assert csv(table, "module_class", "forward_ns", "backward_ns", "backward_frac") == snapshot("""\
module_class,forward_ns,backward_ns,backward_frac
LlamaMLP,30000,0,-
""")
    assert notes(table) == snapshot(
        "info: No backward work was recorded, as in inference: backward_frac is null and can't be derived.\n"
    )


def test_a_backward_pass_alone_has_no_ratio_either() -> None:
    table = ask("forward_backward", *trained(), selection=only(phases=["backward"]))
    assert csv(table, "module_class", "forward_ns", "backward_ns", "backward_frac") == snapshot("""\
module_class,forward_ns,backward_ns,backward_frac
LlamaMLP,0,50000,-
""")
    assert "No forward work was recorded" in notes(table)


def test_top_cuts_the_rows_says_so_and_keeps_the_shares() -> None:
    table = ask("forward_backward", *trained(), top=1)
    assert csv(table, "module_class", "share_frac") == snapshot("""\
module_class,share_frac
LlamaMLP,0.875
""")
    assert "2 rows in all; -p top=0 shows every one." in notes(table)


def test_without_a_device_the_self_time_of_ops_counts() -> None:
    table = ask("forward_backward", op("aten::mm", 10, 50), op(BACKWARD, 100, 20), op("aten::mm", 105, 10))
    assert csv(table, "forward_ns", "backward_ns", "backward_frac") == snapshot("""\
forward_ns,backward_ns,backward_frac
50000,20000,0.4
""")


@pytest.mark.parametrize("name", ["h100-timesformer-math.json.gz", "h100-qwen1.5-0.5b.json.gz"])
def test_classes_of_a_real_trace_have_the_work_launched_inside_them(name: str, traces: Path) -> None:
    path = traces / name
    raw = independent.read(path.read_bytes())
    expected: Counter[str | None] = Counter()
    for piece, _, modules in independent.places_of_work(raw, independent.device_work(raw)):
        expected[modules[-1].rpartition("_")[0] if modules else None] += piece.duration
    with trace_file(path) as opened:
        found = opened.query("forward_backward", top=0).frame
    assert dict(found.select("module_class", "forward_ns").iter_rows()) == dict(expected)
    assert found["backward_ns"].sum() == found["recompute_ns"].sum() == 0
    assert found["backward_frac"].is_null().all()


@pytest.mark.parametrize("name", ["v100-training-memory.json.gz", "mi300x-resnet-checkpointing.json.gz"])
def test_what_the_autograd_engine_of_a_real_trace_launched_is_backward_or_recomputed(name: str, traces: Path) -> None:
    path = traces / name
    raw = independent.read(path.read_bytes())
    own = ("autograd::engine::", "torch.distributed.ddp.reducer::copy_bucket_to_grad")
    engine = [row for row in independent.complete(raw, independent.OPS) if row["name"].startswith(own)]
    nests = {thread: independent.Nest(spans) for thread, spans in independent.by_thread(engine).items()}
    calls = independent.launched_by(raw)
    ops = {(work.correlation, work.start) for work, _ in independent.ops_of_work(raw, independent.device_work(raw))}
    expected = 0
    for piece in independent.device_work(raw):
        call = calls.get(piece.correlation) if piece.correlation is not None else None
        if call is not None and (piece.correlation, piece.start) in ops:
            nest = nests.get(independent.thread(call))
            is_inside = nest is not None and nest.innermost(independent.nanoseconds(call["ts"])) is not None
            expected += piece.duration * is_inside
    with trace_file(path) as opened:
        found = opened.query("forward_backward", by="role", top=0).frame
    assert found["backward_ns"].sum() + found["recompute_ns"].sum() == expected > 0
    assert found["share_frac"].sum() == pytest.approx(1)
