"""Matrix products by their sizes: by hand, and against the raw JSON of real traces."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from inline_snapshot import snapshot
from polars.testing import assert_frame_equal

from tests import independent
from tests.build import Event, ask, csv, kernel, launch, notes, only, op, run, trace_file
from tracekit.attention.devices.devices import Spec
from tracekit.attention.devices.lookups import lookups
from tracekit.loading import tables_of
from tracekit.run import Run
from tracekit.store import Limits

if TYPE_CHECKING:
    from pathlib import Path

H100: dict[str, Any] = {
    "deviceProperties": [
        {"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0, "numSms": 132,
         "totalGlobalMem": 85_018_279_936}
    ]
}  # fmt: skip
BF16 = "nvjet_tst_192x192_64x3_2x1_v_bz_coopB_NNN"
SGEMM = "ampere_sgemm_128x128_tn"
SIZES = ("m", "n", "k", "batch", "dtype", "calls", "work_ns")
RATES = ("call_flops", "call_bytes", "achieved_flops_per_s", "achieved_bytes_per_s", "peak_frac", "bandwidth_frac")


def product(
    name: str,
    start: float,
    length: float,
    correlation: int,
    *shapes: list[int],
    kind: str = "c10::BFloat16",
    **rest: Any,
) -> list[Event]:
    """Make an aten::mm whose launch is made well before its kernel starts."""
    args = {"Input_Dims": list(shapes), "Input_type": [kind] * len(shapes)} if shapes else {}
    return [
        op(rest.pop("op_name", "aten::mm"), start - 100, 20, **args),
        launch(start - 95, correlation),
        kernel(name, start, length, correlation, **rest),
    ]


def test_a_product_is_held_against_the_peaks_of_its_device() -> None:
    # 2 · 4096³ = 137,438,953,472 operations in 200 µs: 687.2 TFLOP/s, 69.4 % of 989.5. 3 · 4096² · 2 bytes: 503 GB/s.
    with run(product(BF16, 200, 200, 1, [4096, 4096], [4096, 4096]), **H100) as opened:
        table = opened.query("gemm_calls")
    row = table.frame.row(0, named=True)
    assert row["call_flops"] == 2 * 4096**3
    assert row["call_bytes"] == 3 * 4096**2 * 2
    assert row["achieved_flops_per_s"] == pytest.approx(687.19476736e12)
    assert row["achieved_bytes_per_s"] == pytest.approx(503.31648e9)
    assert row["peak_frac"] == pytest.approx(687.19476736 / 989.5)
    assert row["bandwidth_frac"] == pytest.approx(503.31648 / 3350)
    assert row["intensity_flops_per_byte"] == pytest.approx(4096 / 3)
    assert row["roof_frac"] == row["peak_frac"]
    assert (row["bound"], row["suspicion"], row["reason"]) == ("compute", None, None)
    assert notes(table) == snapshot("""\
info: Peaks: H100 SXM 80 GB, found by name, capability 9.0 and 132 SMs, 3350 GB/s, TFLOP/s bfloat16
989.5, float16 989.5, float32 67.0, float8 1979.0, tf32 494.5 dense (NVIDIA H100 Tensor Core GPU
datasheet (half of the figures with sparsity)).
info: Bound: launch, the device waited for the calls' launches longer than it then worked; if the
peaks would allow a quarter of the time or less, latency (kernels take under 10 µs each or have
fewer blocks than there are multiprocessors) or neither (more bytes than must move, as an unfused
attention has, or other instructions, such as softmax's); else compute or memory, whichever takes
longer at its peak. Of calls that differ, that of most of the time.
""")


@pytest.mark.parametrize(
    ("sizes", "us", "grid", "bound"),
    [
        (([4096, 4096], [4096, 4096]), 200, [512, 1, 1], "compute"),
        # A vector times a matrix of 32 MiB: 10 µs at 3,350 GB/s.
        (([1, 4096], [4096, 4096]), 15, [512, 1, 1], "memory"),
        (([64, 64], [64, 64]), 5, [512, 1, 1], "latency"),
        # Long, but 8 blocks for 132 multiprocessors.
        (([512, 4096], [4096, 128]), 60, [8, 1, 1], "latency"),
        (([4096, 4096], [4096, 4096]), 2000, [512, 1, 1], "neither"),
    ],
)
def test_bounds_by_hand(sizes: tuple[list[int], list[int]], us: float, grid: list[int], bound: str) -> None:
    with run(product(BF16, 200, us, 1, *sizes, grid=grid, block=[128, 1, 1]), **H100) as opened:
        assert opened.query("gemm_calls").frame["bound"].to_list() == [bound]


def test_a_device_that_waits_longer_than_it_works_is_bound_by_launches() -> None:
    # The first kernel ends at 210; the second is launched at 305, starts at 310 and takes 50: idle for 100.
    events = [
        *product(BF16, 200, 10, 1, [4096, 4096], [4096, 4096]),
        op("aten::mm", 300, 20, Input_Dims=[[64, 64], [64, 64]], Input_type=["c10::BFloat16"] * 2),
    ]
    assert _bound_of_64(*events, launch(305, 2), kernel(BF16, 310, 50, 2)) == "launch"
    # Idle for 100, less than the 110 that it works.
    assert _bound_of_64(*events, launch(305, 2), kernel(BF16, 310, 110, 2)) == "neither"
    # Launched before the first one ended: the device waited for nothing that the host could give.
    events[-1]["ts"] = 190
    assert _bound_of_64(*events, launch(205, 2), kernel(BF16, 310, 50, 2)) == "neither"


def _bound_of_64(*events: Event) -> str | None:
    with run(*events, **H100) as opened:
        return dict(opened.query("gemm_calls").frame.select("m", "bound").iter_rows())[64]


def test_more_than_the_peak_is_said_to_be_suspicious() -> None:
    with run(product(BF16, 200, 100, 1, [4096, 4096], [4096, 4096]), **H100) as opened:
        table = opened.query("gemm_calls")
    assert csv(table, "peak_frac", "suspicion") == snapshot("""\
peak_frac,suspicion
1.388973759191511,operations above peak
""")
    # 24 MiB in 1 µs: 25 TB/s, which the cache of 50 MiB may give.
    with run(product(BF16, 200, 1, 1, [1, 1024], [1024, 12288], grid=[512, 1, 1]), **H100) as opened:
        assert "fit in the cache" in opened.query("gemm_calls").frame["suspicion"].item()


def test_all_work_of_an_op_is_its_call_and_a_kernel_without_op_is_one_without_sizes() -> None:
    reduce = "void cublasLt::splitKreduce_kernel<32, 16, int>(int)"
    table = ask(
        "gemm_calls",
        op("aten::mm", 100, 20, Input_Dims=[[2, 3], [3, 5]], Input_type=["float", "float"]),
        launch(101, 1),
        launch(105, 2),
        kernel(SGEMM, 200, 30, 1),
        kernel(reduce, 230, 5, 2),
        kernel(BF16, 300, 10, 99),
        product("mystery", 500, 7, 3, op_name="aten::add"),
    )
    assert csv(table, *SIZES, "kernel", "reason") == snapshot("""\
m,n,k,batch,dtype,calls,work_ns,kernel,reason
2,5,3,1,float32,1,35000,ampere_sgemm_128x128_tn,the trace does not describe its device
-,-,-,-,bfloat16,1,10000,nvjet_tst_192x192_64x3_2x1_v_bz_coopB_NNN,no op asked for it in the trace
""")


def test_products_of_experts_are_rows_without_sizes_and_are_said_to_lack_them() -> None:
    vendor = (
        "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_schedP2x1x2x3_biasM_bN_tmaOpt_clmp_dynBatch_sm100f"
    )
    table = ask(
        "gemm_calls",
        product(SGEMM, 200, 10, 1, [2, 3], [3, 5], kind="float"),
        product(vendor, 300, 30, 2, [888, 2880], [888, 128], op_name="vllm::moe_forward"),
        product("void moe::dev::routing::routingIndicesOffsetsKernel<int>()", 400, 5, 3, op_name="vllm::moe_forward"),
        kernel(BF16, 500, 20, 99),
        product("fmhaSm100aKernel_QkvE4m3", 600, 40, 5, op_name="vllm::unified_attention"),
    )
    assert csv(table, "m", "calls", "work_ns", "reason") == snapshot("""\
m,calls,work_ns,reason
-,1,30000,its op has no shapes of a product
-,1,20000,no op asked for it in the trace
2,1,10000,the trace does not describe its device
""")
    assert notes(table) == snapshot("""\
not_derivable: Peaks: the trace does not describe its device. Rates are there, shares of peak and
most bounds are not; --device-spec FILE gives peaks.
info: Bound: launch, the device waited for the calls' launches longer than it then worked; if the
peaks would allow a quarter of the time or less, latency (kernels take under 10 µs each or have
fewer blocks than there are multiprocessors) or neither (more bytes than must move, as an unfused
attention has, or other instructions, such as softmax's); else compute or memory, whichever takes
longer at its peak. Of calls that differ, that of most of the time.
not_derivable: 83.3 % of the time of products has no sizes, and rates leave it out: trtllm_moe_gemm
in vllm::moe_forward 0.03 ms (its op has no shapes of a product); nvjet_gemm 0.02 ms (no op asked
for it in the trace).
info: 38.1 % of all work is fused attention and convolutions, whose products are no rows.
warning: 19.0 % of device time has no op in the trace (see unlinked_kernels): its roles come from
kernel names and order.
""")


def test_an_op_around_another_is_not_counted_again_on_the_cpu() -> None:
    shapes = {"Input_type": ["float", "float"]}
    table = ask(
        "gemm_calls",
        op("aten::linear", 0, 100, Input_Dims=[[2, 3], [5, 3]], **shapes),
        op("aten::matmul", 10, 80, Input_Dims=[[2, 3], [3, 5]], **shapes),
        op("aten::mm", 20, 60, Input_Dims=[[2, 3], [3, 5]], **shapes),
    )
    assert csv(table, *SIZES, "achieved_flops_per_s", "bound") == snapshot("""\
m,n,k,batch,dtype,calls,work_ns,achieved_flops_per_s,bound
2,5,3,1,float32,1,60000,1000000.0,-
""")
    assert "No device was recorded" in notes(table)


def test_without_shapes_there_is_time_alone() -> None:
    table = ask("gemm_calls", product(BF16, 200, 20, 1))
    assert csv(table, *SIZES, *RATES, "reason") == snapshot("""\
m,n,k,batch,dtype,calls,work_ns,call_flops,call_bytes,achieved_flops_per_s,achieved_bytes_per_s,peak_frac,bandwidth_frac,reason
-,-,-,-,bfloat16,1,20000,-,-,-,-,-,-,no shapes were recorded
""")


def test_a_device_that_is_not_known_leaves_peaks_out_and_a_user_s_file_gives_them() -> None:
    events = product(BF16, 200, 200, 1, [4096, 4096], [4096, 4096])
    with run(*events, deviceProperties=[{"name": "GeForce 9999", "numSms": 8}]) as opened:
        table = opened.query("gemm_calls")
    assert csv(table, "call_flops", "achieved_flops_per_s", "peak_frac", "roof_frac", "bound", "reason") == snapshot("""\
call_flops,achieved_flops_per_s,peak_frac,roof_frac,bound,reason
137438953472,687194767360000.0,-,-,-,no peaks are known of GeForce 9999
""")
    assert "no peaks are known of GeForce 9999" in notes(table)
    spec = Spec("mine", {"bfloat16": 1000e12}, 4000e9, None, "mine.toml")
    ((_, name, *_, status, reason, source),) = lookups(spec)["device_spec"].rows([(0, *[None] * 5)])
    assert (name, status, reason, source) == ("mine", "exact", "given by --device-spec", "mine.toml")


@pytest.mark.parametrize("phases", [(), ("backward",)])
@pytest.mark.parametrize("name", ["h100-nanogpt-before", "mi300x-qwen1.5-0.5b", "a100-sam-math"])
def test_a_bundle_that_holds_no_products_answers_as_one_that_does(
    traces: Path, name: str, phases: tuple[str, ...]
) -> None:
    held = {
        table: frame.lazy()
        for table, frame in tables_of((traces / f"{name}.json.gz").read_bytes(), f"{name}.json.gz").items()
    }
    assert held["product"].collect().height
    older = {table: frame for table, frame in held.items() if table != "product"}
    answers = []
    for tables in (held, older):
        with Run(name, tables, only(phases=phases), Limits()) as opened:
            answers.append(opened.sql("select * from gemm_call order by all").frame)
    assert_frame_equal(*answers)
    assert answers[0].height or phases


@pytest.mark.parametrize("name", ["h100-qwen1.5-0.5b", "h100-nanogpt-before", "mi300x-qwen1.5-0.5b"])
def test_time_and_operations_are_those_of_the_file(traces: Path, name: str) -> None:
    path = traces / f"{name}.json.gz"
    events = independent.read(path.read_bytes())
    expected = _products(events)
    with trace_file(path) as opened:
        frame = opened.query("gemm_calls", top=0).frame
    known = frame.drop_nulls("m").select("m", "k", "n", "batch", "calls", "work_ns", "call_flops")
    found: dict[tuple[int, ...], list[int]] = defaultdict(lambda: [0, 0])
    for m, k, n, batch, calls, ns, flops in known.iter_rows():
        found[m, k, n, batch][0] += calls
        found[m, k, n, batch][1] += ns
        assert flops == 2 * batch * m * k * n
    assert dict(found) == expected
    assert frame["roof_frac"].drop_nulls().max() < 1  # type: ignore[operator]
    assert frame["suspicion"].is_null().all()


def _products(events: list[Event]) -> dict[tuple[int, ...], list[int]]:
    """Return calls and device time by (m, k, n, batch) of mm, addmm, bmm and _scaled_mm, from launches inside them."""
    ops = [event for event in independent.complete(events, independent.OPS) if "Input Dims" in independent.args(event)]
    spans: dict[tuple[str, str], list[tuple[int, int, Event]]] = defaultdict(list)
    for event in ops:
        start = independent.nanoseconds(event["ts"])
        spans[independent.thread(event)].append((start, start + independent.nanoseconds(event["dur"]), event))
    durations: dict[int, int] = defaultdict(int)
    for event in independent.complete(events, independent.DEVICE):
        durations[independent.args(event).get("correlation")] += independent.nanoseconds(event["dur"])
    found: dict[tuple[int, ...], list[int]] = defaultdict(lambda: [0, 0])
    for row in _innermost(events, spans, durations):
        sizes, ns = row
        found[sizes][0] += 1
        found[sizes][1] += ns
    return dict(found)


def _innermost(events: list[Event], spans: Any, durations: dict[int, int]) -> list[tuple[tuple[int, ...], int]]:
    of_op: dict[int, int] = defaultdict(int)
    kept = {}
    for event in independent.complete(events, independent.CALLS):
        at, correlation = independent.nanoseconds(event["ts"]), independent.args(event).get("correlation")
        around = [one for one in spans[independent.thread(event)] if one[0] <= at < one[1]]
        if correlation not in durations or not around:
            continue
        innermost = max(around, key=lambda one: (one[0], -one[1]))[2]
        if innermost["name"] in {"aten::mm", "aten::addmm", "aten::bmm", "aten::_scaled_mm", "aten::baddbmm"}:
            of_op[id(innermost)] += durations.pop(correlation)
            kept[id(innermost)] = innermost
    return [(_sizes(kept[key]), ns) for key, ns in of_op.items()]


def _sizes(event: Event) -> tuple[int, ...]:
    dims = json.loads(json.dumps(independent.args(event)["Input Dims"]))
    left, right = dims[1:3] if event["name"] in {"aten::addmm", "aten::baddbmm"} else dims[:2]
    return left[-2], left[-1], right[-1], left[0] if len(left) == 3 else 1
