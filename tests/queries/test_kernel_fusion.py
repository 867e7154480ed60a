"""Chains of pointwise kernels that could be fused, on traces that an eye can add up, and on real ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from inline_snapshot import snapshot

from tests import independent
from tests.build import Event, annotation, ask, csv, frame, kernel, launch, notes, op, step, trace_file, work
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from pathlib import Path

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
POINTWISE = {"aten_elementwise", "aten_activation", "aten_dropout", "aten_mask", "aten_copy", "inductor_pointwise"}
POINTWISE |= {"activation", "inductor_activation", "inductor_copy", "inductor_quant"}


def add(
    at: float, length: float, correlation: int, *, name: str = "aten::add", size: int = 8, **rest: Any
) -> list[Event]:
    """Make a pointwise op on tensors of so many elements, and its kernel."""
    return [
        op(name, at, 4, Input_Dims=[[size, 2], [2]], Input_type=["float", "float"]),
        launch(at + 1, correlation),
        kernel(ADD, at + 5, length, correlation, **rest),
    ]


def chain(at: float = 0, first: int = 1) -> list[Event]:
    """Make an add of 20 µs, a mul of 30 and a silu of 10, one after another."""
    return [
        *add(at, 20, first),
        *add(at + 30, 30, first + 1, name="aten::mul"),
        *add(at + 70, 10, first + 2, name="aten::silu"),
    ]


def chains(*events: Event | list[Event]) -> list[tuple[str, int]]:
    """Return the ops of the chains found and how often each was, without the rest."""
    found = ask("kernel_fusion", *events).frame
    return [(ops, times) for ops, times in found.select("ops", "chains").iter_rows() if ops is not None]


def test_a_chain_has_at_stake_all_but_its_longest_kernel() -> None:
    table = ask("kernel_fusion", chain(), work("gemm", 120, 40, 9, op_name="aten::mm"))
    assert csv(table) == snapshot("""\
module_class,phase,ops,kernels,chains,chain_kernels,step_kernels,module_kernels,total_ns,share_frac,stake_ns,stake_frac,stake_status
-,forward,aten::add > aten::mul > aten::silu,3,1,3,3,-,60000,0.6,30000,0.3,estimated
-,forward,-,1,0,-,1,-,40000,0.4,0,0.0,-
""")
    assert notes(table) == snapshot("""\
estimated: stake_ns: a fused chain takes as long as its longest kernel, one pass of reading and
writing instead of several. An upper bound: whether a kernel reads what the one before wrote is not
in the trace, and inputs that only the others read must still be read. Host time is not counted.
info: No nn.Module rows were recorded: -p by=ops groups by chains alone. Record with
with_stack=True.
""")


def test_alike_chains_add_up() -> None:
    events = [*chain(), *work("gemm", 120, 40, 8, op_name="aten::mm"), *chain(200, 11)]
    assert csv(ask("kernel_fusion", *events), "ops", "kernels", "chains", "total_ns", "stake_ns") == snapshot("""\
ops,kernels,chains,total_ns,stake_ns
aten::add > aten::mul > aten::silu,6,2,120000,60000
-,1,0,40000,0
""")


@pytest.mark.parametrize(
    "between",
    [
        work("gemm", 40, 2, 9, op_name="aten::mm"),
        work("Memcpy DtoD (Device -> Device)", 40, 2, 9, op_name="aten::copy_"),
    ],
)
def test_other_work_between_them_ends_a_chain(between: list[Event]) -> None:
    assert chains(add(0, 20, 1), between, add(60, 20, 2)) == []
    assert chains(add(0, 20, 1), add(60, 20, 2)) == [("aten::add > aten::add", 1)]


def test_only_kernels_of_equally_many_elements_on_one_stream_of_a_device_make_a_chain() -> None:
    assert chains(add(0, 20, 1), add(30, 20, 2, size=16)) == []
    assert chains(add(0, 20, 1), add(30, 20, 2, stream=8)) == []
    assert chains(add(0, 20, 1), add(30, 20, 2, device=1)) == []


def test_steps_and_phases_end_a_chain() -> None:
    assert chains(step(1, 0, 29), step(2, 29, 60), add(0, 20, 1), add(30, 20, 2)) == []
    assert chains(annotation("Optimizer.step#SGD.step", 29, 60), add(0, 20, 1), add(30, 20, 2)) == []


def test_without_shapes_their_grids_stand_in() -> None:
    def bare(at: float, correlation: int, grid: list[int]) -> list[Event]:
        return [op("aten::add", at, 4), launch(at + 1, correlation), kernel(ADD, at + 5, 9, correlation, grid=grid)]

    assert chains(bare(0, 1, [4, 1, 1]), bare(30, 2, [4, 1, 1])) == [("aten::add > aten::add", 1)]
    assert chains(bare(0, 1, [4, 1, 1]), bare(30, 2, [8, 1, 1])) == []
    assert "taken from their grids" in " ".join(notes(ask("kernel_fusion", bare(0, 1, [4, 1, 1]))).split())


def test_by_module_each_kernel_counts_where_it_ran_and_steps_have_their_kernels() -> None:
    events = [
        step(1, 0, 200),
        frame("nn.Module: LlamaDecoderLayer_0", 0, 190, 1),
        *add(2, 20, 1),
        frame("nn.Module: LlamaRMSNorm_0", 28, 80, 2, 1),
        *add(30, 30, 2, name="aten::mul"),
        *add(70, 10, 3, name="aten::rsqrt"),
    ]
    columns = ("module_class", "kernels", "chains", "step_kernels", "module_kernels", "total_ns", "stake_ns")
    assert csv(ask("kernel_fusion", *events, by="module"), *columns) == snapshot("""\
module_class,kernels,chains,step_kernels,module_kernels,total_ns,stake_ns
LlamaDecoderLayer,1,1,1,3,20000,20000
LlamaRMSNorm,2,0,2,2,40000,10000
""")
    assert csv(ask("kernel_fusion", *events), "module_class", "ops", "kernels", "total_ns", "stake_ns") == snapshot("""\
module_class,ops,kernels,total_ns,stake_ns
LlamaDecoderLayer,aten::add > aten::mul > aten::rsqrt,3,60000,30000
""")


def test_a_kernel_without_an_op_is_named_by_its_family() -> None:
    events = [kernel(ADD, 0, 10, 97, grid=[1, 1, 1]), kernel(ADD, 20, 10, 98, grid=[1, 1, 1])]
    assert chains(events) == [("aten_elementwise > aten_elementwise", 1)]


def test_a_long_chain_is_shown_by_its_first_ops_and_its_length() -> None:
    found = chains(*[add(30 * number, 20, number) for number in range(1, 12)])
    assert found == [(" > ".join(["aten::add"] * 8) + " > ... of 11", 1)]


def test_however_kernels_are_grouped_they_and_the_stake_add_up() -> None:
    events = [*chain(), *work("gemm", 120, 40, 8, op_name="aten::mm"), *chain(200, 11)]
    for by in ("module", "phase", "ops", "module,phase,ops", ""):
        found = ask("kernel_fusion", *events, by=by, top=0).frame
        sums = [found[column].sum() for column in ("kernels", "chains", "total_ns", "stake_ns")]
        assert sums == [7, 2, 160_000, 60_000], by


def test_shapes_that_are_none_end_no_answer() -> None:
    for dims in ([["x"]], {"a": 1}, [[[2], 3]], [], "x"):
        events = [op("aten::add", 0, 4, Input_Dims=dims), launch(1, 1), kernel(ADD, 5, 10, 1)]
        assert ask("kernel_fusion", *events).frame["kernels"].to_list() == [1]


def test_without_a_device_it_says_what_to_record() -> None:
    with pytest.raises(TracekitError) as caught:
        ask("kernel_fusion", op("aten::add", 0, 10))
    assert "ProfilerActivity.CUDA" in str(caught.value)


def _elements(inner: Event) -> int | None:
    """Return the elements of the largest tensor of an op."""
    sizes = []
    for dims in independent.args(inner).get("Input Dims", []):
        if dims and all(isinstance(extent, int) for extent in dims):
            sizes.append(1)
            for extent in dims:
                sizes[-1] *= extent
    return max(sizes, default=None)


def test_chains_of_a_real_trace_are_those_of_a_second_search(traces: Path) -> None:
    path = traces / "h100-qwen1.5-0.5b.json.gz"
    raw = independent.read(path.read_bytes())
    works = independent.device_work(raw)
    ops = {(piece.correlation, piece.start): (inner, modules)
           for piece, inner, modules in independent.places_of_work(raw, works)}  # fmt: skip
    with trace_file(path) as opened:
        families = dict(opened.sql("select distinct name, family from kernel").frame.iter_rows())
        found = opened.query("kernel_fusion", top=0, by="ops").frame
        linked = opened.sql("select correlation, start_ns from kernel where op_id is not null").frame.height
    assert linked == len(ops)
    streams: dict[str, list[independent.Work]] = defaultdict(list)
    for piece in works:
        streams[piece.stream].append(piece)
    seen: Counter[str] = Counter()
    stake: Counter[str] = Counter()
    for pieces in streams.values():
        run: list[independent.Work] = []
        for piece in [*sorted(pieces, key=lambda piece: piece.start), None]:
            inner, _ = ops.get((piece.correlation, piece.start), (None, ())) if piece else (None, ())
            is_linked = inner is not None and piece is not None and families[piece.name] in POINTWISE
            before = ops[run[-1].correlation, run[-1].start][0] if run else None
            if is_linked and before is not None and inner is not None and _elements(inner) == _elements(before):
                run.append(piece)  # type: ignore[arg-type]
                continue
            if len(run) > 1:
                key = " > ".join(ops[one.correlation, one.start][0]["name"] for one in run)
                seen[key] += 1
                stake[key] += sum(one.duration for one in run) - max(one.duration for one in run)
            run = [piece] if is_linked and piece is not None else []
    named = found.filter(found["ops"].str.contains("aten::"))
    assert dict(named.select("ops", "chains").iter_rows()) == dict(seen)
    assert dict(named.select("ops", "stake_ns").iter_rows()) == dict(stake)
    assert found["kernels"].sum() == len(works)
    assert found["total_ns"].sum() == sum(piece.duration for piece in works)
