"""What communication costs: exposed time against a count of every microsecond, bandwidths against nccl-tests."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from tests import independent
from tests.build import Event, annotation, ask, csv, kernel, launch, notes, only, op, step, trace_file

TIMES = ("collective", "calls", "time_ns", "exposed_ns", "exposed_frac")
RATES = (
    "algorithm_bytes_per_s",
    "bus_bytes_per_s",
    "best_bus_bytes_per_s",
    "bandwidth_status",
    "bandwidth_reason",
)
NAMES = {
    "all_reduce": ("allreduce", "AllReduce_Sum_f32"),
    "all_gather": ("_allgather_base", "AllGather"),
    "reduce_scatter": ("_reduce_scatter_base", "ReduceScatter_Sum_f32"),
    "all_to_all": ("all_to_allv", "SendRecv"),
    "broadcast": ("broadcast", "Broadcast"),
    "reduce": ("reduce", "Reduce_Sum_f32"),
    "send": ("send", "SendRecv"),
    "gather": ("gather", "SendRecv"),
}


def comm(
    start: float,
    duration: float,
    number: int,
    *,
    what: str = "all_reduce",
    size: int | None = 4,
    given_elements: int | None = 1000,
    received: int | None = None,
    group: str = "0",
    asked: float | None = None,
) -> list[Event]:
    """Make a collective: the profiler's record of it, its launch and its kernel on a stream of its own.

    Elements are of 4 bytes; what is received is what is given unless it is said.
    """
    said, name = NAMES[what]
    known: dict[str, Any] = {"Collective name": said, "dtype": "Float", "Process Group Name": group}
    known |= {} if size is None else {"Group size": size}
    if given_elements is not None:
        known |= {"In msg nelems": given_elements, "Out msg nelems": received or given_elements}
    at = start - 4 if asked is None else asked
    record = op("record_param_comms", at, 2)
    record["args"] = known
    row = kernel(f"ncclDevKernel_{name}_RING_LL(ncclDevKernelArgsStorage<4096ul>)", start, duration, number, stream=20)
    return [record, launch(at + 0.5, number), row]


def compute(start: float, duration: float, number: int, *, device: int = 0, name: str = "gemm") -> list[Event]:
    """Make a compute kernel with its op and launch."""
    at = number / 1000
    return [
        op("aten::mm", at, 0.0009),
        launch(at, number, duration=0.0005),
        kernel(name, start, duration, number, device=device),
    ]


def test_a_group_and_a_collective_make_a_row() -> None:
    table = ask(
        "collectives",
        comm(10, 20, 1),
        comm(40, 10, 2),
        comm(60, 5, 3, what="all_gather", given_elements=500, received=2000),
        comm(70, 10, 4, group="1", size=2),
        compute(15, 5, 5),
    )
    assert csv(table) == snapshot("""\
rank,group_name,ranks,collective,measured_on,calls,bytes,time_ns,exposed_ns,exposed_frac,algorithm_bytes_per_s,bus_bytes_per_s,best_bus_bytes_per_s,bandwidth_status,bandwidth_reason
-,0,4,all_reduce,device,2,8000,30000,25000,0.8333333333333334,266666666.66666666,400000000.0,600000000.0,estimated,-
-,1,2,all_reduce,device,1,4000,10000,10000,1.0,400000000.0,400000000.0,400000000.0,estimated,-
-,0,4,all_gather,device,1,8000,5000,5000,1.0,1600000000.0,1200000000.0,1200000000.0,estimated,-
""")
    assert notes(table) == snapshot("""\
estimated: Bandwidths take all of a collective's time to be transfer, waiting for other ranks too:
the links are at least that fast.
""")


def test_compute_beside_it_hides_communication_and_copies_do_not() -> None:
    copy = kernel("Memcpy HtoD (Pinned -> Device)", 12, 5, 8, stream=9) | {"cat": "gpu_memcpy"}
    table = ask(
        "collectives",
        comm(10, 30, 1),
        compute(5, 10, 2),
        compute(12, 8, 3),
        compute(35, 20, 4),
        compute(22, 5, 5, device=1),
        [op("aten::copy_", 1, 2), launch(1.5, 8, name="cudaMemcpyAsync"), copy],
    )
    assert csv(table, *TIMES) == snapshot("""\
collective,calls,time_ns,exposed_ns,exposed_frac
all_reduce,1,30000,15000,0.5
""")


def test_collectives_side_by_side_do_not_hide_each_other() -> None:
    table = ask("collectives", comm(10, 30, 1), comm(20, 30, 2, group="1"))
    assert table.frame["exposed_ns"].to_list() == [30_000, 30_000]


@pytest.mark.parametrize(
    ("what", "factor"),
    [
        ("all_reduce", 2 * 3 / 4),
        ("all_gather", 3 / 4),
        ("reduce_scatter", 3 / 4),
        ("all_to_all", 3 / 4),
        ("broadcast", 1),
        ("reduce", 1),
        ("send", 1),
    ],
)
def test_bus_bandwidth_is_that_of_nccl_tests(what: str, factor: float) -> None:
    row = ask("collectives", comm(10, 20, 1, what=what), comm(40, 60, 2, what=what)).frame.row(0, named=True)
    assert row["collective"] == what
    assert row["algorithm_bytes_per_s"] == pytest.approx(2 * 4000 / 80e-6)
    assert row["bus_bytes_per_s"] == pytest.approx(factor * 2 * 4000 / 80e-6)
    assert row["best_bus_bytes_per_s"] == pytest.approx(factor * 4000 / 20e-6)
    assert row["bandwidth_status"] == "estimated"


def test_what_is_not_known_has_no_bandwidth_and_says_why() -> None:
    table = ask(
        "collectives",
        comm(10, 20, 1, given_elements=None),
        comm(40, 10, 2, size=None, group="1"),
        comm(60, 5, 3, what="gather", group="2"),
        comm(80, 10, 4, group="3"),
        comm(95, 10, 5, group="3", given_elements=None),
        annotation("nccl:all_reduce", 200, 10),
    )
    assert csv(table, "group_name", "collective", "measured_on", "bytes", *RATES) == snapshot("""\
group_name,collective,measured_on,bytes,algorithm_bytes_per_s,bus_bytes_per_s,best_bus_bytes_per_s,bandwidth_status,bandwidth_reason
0,all_reduce,device,-,-,-,-,not_derivable,message size unknown
3,all_reduce,device,4000,400000000.0,600000000.0,600000000.0,estimated,message size of 1 calls unknown
1,all_reduce,device,4000,400000000.0,-,-,not_derivable,bus: size of the group unknown
-,all_reduce,host,-,-,-,-,not_derivable,no device work
2,gather,device,4000,800000000.0,-,-,not_derivable,bus: no factor for this collective
""")
    assert "info: 1 collectives left no device work" in notes(table)


def test_selected_steps_alone_are_counted_and_all_compute_hides() -> None:
    events = [step(1, 0, 50), *comm(10, 20, 1), *compute(70, 10, 2), step(2, 50, 50), *comm(60, 30, 3)]
    table = ask("collectives", *events, selection=only(steps=[2]))
    assert csv(table, *TIMES) == snapshot("""\
collective,calls,time_ns,exposed_ns,exposed_frac
all_reduce,1,30000,20000,0.6666666666666666
""")


def test_every_family_that_communicates_is_known_to_the_questions() -> None:
    rows = tomllib.loads(files("tracekit.attention").joinpath("families.toml").read_text(encoding="utf-8"))["family"]
    families = sorted(row["name"] for row in rows if row.get("action") == "comm")
    for name in ("collectives", "launch_gaps"):
        text = (Path(__file__).parents[2] / "queries" / f"{name}.sql").read_text(encoding="utf-8")
        assert [family for family in families if f"'{family}'" not in text] == []


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(10, 80), st.integers(1, 40)), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 110), st.integers(0, 40)), max_size=8),
)
def test_exposed_time_is_that_of_counting_every_microsecond(
    comms: list[tuple[int, int]], computes: list[tuple[int, int]]
) -> None:
    events = [comm(200 + at, length, number, asked=10 * number) for number, (at, length) in enumerate(comms, 1)]
    events += [compute(200 + at, length, number) for number, (at, length) in enumerate(computes, 100)]
    hidden = {moment for at, length in computes for moment in range(at, at + length)}
    exposed = sum(len(set(range(at, at + length)) - hidden) for at, length in comms)
    found = ask("collectives", *events).frame
    assert found["time_ns"].sum() == 1000 * sum(length for _, length in comms)
    assert found["exposed_ns"].sum() == 1000 * exposed


@pytest.mark.parametrize(
    "name", ["h100-nanogpt-before.json.gz", "a100-nccl.json.gz", "mi300x-resnet-checkpointing.json.gz"]
)
def test_exposed_time_of_a_real_trace_is_that_of_its_file(traces: Path, name: str) -> None:
    path = traces / name
    raw = independent.read(path.read_bytes())
    spans: dict[bool, list[independent.Span]] = {True: [], False: []}
    for row in independent.complete(raw, {"kernel"}):
        spans["nccl" in row["name"]].append(independent.span(row))
    other = sorted(spans[False])
    exposed = sum(_outside(span, other) for span in spans[True])
    with trace_file(path) as opened:
        found = opened.query("collectives").frame
    assert found["calls"].sum() == len(spans[True]) > 0
    assert found["time_ns"].sum() == sum(span.end - span.start for span in spans[True])
    assert found["exposed_ns"].sum() == exposed


def _outside(one: independent.Span, others: list[independent.Span]) -> int:
    """Return the part of a span in ns that no other covers."""
    clipped = [independent.Span(max(one.start, other.start), min(one.end, other.end)) for other in others]
    inside = sorted(span for span in clipped if span.end > span.start)
    return one.end - one.start - (independent.busy(inside) if inside else 0)
