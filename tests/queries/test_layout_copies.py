"""What moving data costs, on traces small enough to add up by eye, and on real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from inline_snapshot import snapshot

from tests import independent
from tests.build import Event, ask, csv, event, frame, kernel, launch, notes, op, trace_file, work

if TYPE_CHECKING:
    from pathlib import Path

COPY = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(int)"
CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 4, 128, 1>(float*)"
SIZES = {"float": 4, "c10::BFloat16": 2, "c10::Half": 2, "long int": 8, "int": 4, "bool": 1, "unsigned char": 1}


def moved(at: float, length: float, correlation: int, *ops: str, name: str = COPY, **args: Any) -> list[Event]:
    """Make ops around one another, the innermost last and with these args, and the kernel that it launches."""
    around = [op(outer, at + depth, 20 - 2 * depth) for depth, outer in enumerate(ops[:-1])]
    depth = len(ops) - 1
    inner = op(ops[-1], at + depth, 20 - 2 * depth, **args)
    return [*around, inner, launch(at + depth + 1, correlation), kernel(name, at + 30, length, correlation)]


def shapes(written: list[int], read: list[int], to: str, source: str, strides: list[int]) -> dict[str, Any]:
    """Return the args of aten::copy_ as the profiler records them."""
    return {
        "Input_Dims": [written, read, []],
        "Input_type": [to, source, "Scalar"],
        "Input_Strides": [written, strides, []],
    }


def memcpy(at: float, length: float, size: int, kind: str = "DtoD (Device -> Device)", correlation: int = 90) -> Event:
    """Make a copy by the driver."""
    args = {"device": 0, "stream": 7, "bytes": size, "correlation": correlation}
    return event("gpu_memcpy", f"Memcpy {kind}", at, length, pid=0, tid=7, args=args)


def test_a_transposed_view_made_real_is_named_by_what_the_code_asked_for() -> None:
    args = shapes([2, 4, 8], [2, 4, 8], "c10::BFloat16", "c10::BFloat16", [32, 1, 4])
    table = ask("layout_copies", moved(0, 10, 1, "aten::contiguous", "aten::clone", "aten::copy_", **args))
    columns = ("movement", "op", "calls", "total_ns", "moved_bytes", "moved_bytes_per_s", "bytes_status")
    assert csv(table, *columns) == snapshot("""\
movement,op,calls,total_ns,moved_bytes,moved_bytes_per_s,bytes_status
make contiguous,aten::contiguous,1,10000,128,12800000.0,estimated
""")


def test_an_expanded_view_made_real_is_a_repeat_as_of_k_and_v_for_grouped_heads() -> None:
    args = shapes([1, 2, 4, 16, 8], [1, 2, 4, 16, 8], "c10::Half", "c10::Half", [256, 128, 0, 8, 1])
    table = ask("layout_copies", moved(0, 10, 1, "aten::reshape", "aten::clone", "aten::copy_", **args))
    assert csv(table, "movement", "op", "moved_bytes") == snapshot("""\
movement,op,moved_bytes
repeat,aten::reshape,2048
""")


@pytest.mark.parametrize(
    ("ops", "movement"),
    [
        (("aten::to", "aten::_to_copy", "aten::copy_"), "cast"),
        (("aten::repeat_interleave", "aten::clone", "aten::copy_"), "repeat"),
        (("aten::repeat", "aten::copy_"), "repeat"),
        (("aten::reshape", "aten::clone", "aten::copy_"), "make contiguous"),
        (("aten::pad", "aten::constant_pad_nd", "aten::copy_"), "pad"),
        (("aten::clone", "aten::copy_"), "clone"),
        (("aten::copy_",), "copy"),
    ],
)
def test_without_shapes_the_ops_around_a_copy_say_what_it_is_but_not_its_bytes(
    ops: tuple[str, ...], movement: str
) -> None:
    table = ask("layout_copies", moved(0, 10, 1, *ops))
    found = table.frame.row(0, named=True)
    assert (found["movement"], found["op"], found["bytes_status"]) == (movement, ops[0], "not_derivable")
    assert (found["moved_bytes"], found["moved_bytes_per_s"]) == (None, None)
    assert "record_shapes=True" in notes(table)


def test_types_that_differ_are_a_cast_whatever_is_around() -> None:
    args = shapes([2, 3], [2, 3], "float", "c10::BFloat16", [3, 1])
    table = ask("layout_copies", moved(0, 10, 1, "aten::contiguous", "aten::clone", "aten::copy_", **args))
    assert csv(table, "movement", "moved_bytes") == snapshot("""\
movement,moved_bytes
cast,24
""")


def test_copies_of_the_driver_are_exact_and_tell_host_from_device() -> None:
    events = [
        op("aten::clone", 0, 20),
        op("aten::copy_", 2, 10),
        launch(4, 1, name="cudaMemcpyAsync"),
        memcpy(30, 10, 1000, correlation=1),
        op("aten::copy_", 50, 10),
        launch(52, 2, name="cudaMemcpyAsync"),
        memcpy(70, 20, 64, "HtoD (Pageable -> Device)", correlation=2),
    ]
    table = ask("layout_copies", *events)
    assert csv(table, "movement", "op", "family", "total_ns", "moved_bytes", "bytes_status") == snapshot("""\
movement,op,family,total_ns,moved_bytes,bytes_status
transfer,aten::copy_,memcpy,20000,64,exact
clone,aten::clone,memcpy,10000,1000,exact
""")


def test_a_concatenation_has_no_bytes_since_its_types_are_not_recorded() -> None:
    args = {"Input_Dims": [[[2, 3], [2, 3]], []], "Input_type": ["TensorList", "Scalar"]}
    table = ask("layout_copies", moved(0, 10, 1, "aten::cat", name=CAT, **args))
    assert csv(table, "movement", "op", "moved_bytes", "bytes_status") == snapshot("""\
movement,op,moved_bytes,bytes_status
concatenate,aten::cat,-,not_derivable
""")


def test_two_kernels_of_one_op_write_its_bytes_once() -> None:
    args = shapes([10], [10], "float", "float", [1])
    events = moved(0, 10, 1, "aten::clone", "aten::copy_", **args)
    table = ask("layout_copies", *events, launch(3, 2), kernel(COPY, 60, 10, 2))
    assert csv(table, "calls", "total_ns", "moved_bytes") == snapshot("""\
calls,total_ns,moved_bytes
2,20000,40
""")


def test_in_attention_they_are_shares_of_its_time_and_can_be_asked_for_alone() -> None:
    args = shapes([2, 4], [2, 4], "float", "float", [1, 2])
    events = [
        frame("nn.Module: LlamaAttention_0", 0, 100, 1),
        *moved(10, 10, 1, "aten::contiguous", "aten::clone", "aten::copy_", **args),
        *work("flash_fwd_kernel", 70, 30, 2, op_name="aten::_scaled_dot_product_flash_attention"),
        *moved(200, 60, 3, "aten::clone", "aten::copy_", **args),
    ]
    table = ask("layout_copies", *events)
    assert csv(table, "role", "movement", "total_ns", "attention_frac", "share_frac") == snapshot("""\
role,movement,total_ns,attention_frac,share_frac
copy,clone,60000,-,0.6
attention.layout,make contiguous,10000,0.25,0.1
""")
    assert notes(table) == snapshot("""\
exact: Copies take 25.0 % of the time of attention: 0.010 ms.
estimated: moved_bytes of copy kernels is elements times size of what aten::copy_ writes, by its
recorded shape and type.
""")
    assert ask("layout_copies", *events, attention=True).frame["role"].to_list() == ["attention.layout"]


def test_copies_without_an_op_are_shown_by_their_family() -> None:
    table = ask("layout_copies", kernel(COPY, 30, 10, 99), *work("gemm", 60, 10, 1, op_name="aten::mm"))
    assert csv(table, "role", "movement", "op", "family", "bytes_status") == snapshot("""\
role,movement,op,family,bytes_status
unlinked,copy,-,aten_copy,not_derivable
""")


def test_a_copy_that_was_compiled_says_so() -> None:
    table = ask("layout_copies", work("triton_poi_fused__to_copy_1", 20, 10, 1, op_name="triton_poi_fused__to_copy_1"))
    assert csv(table, "movement", "op", "family", "bytes_status") == snapshot("""\
movement,op,family,bytes_status
compiled copy,triton_poi_fused__to_copy_1,inductor_copy,not_derivable
""")


def test_without_a_device_ops_that_copy_count() -> None:
    args = shapes([2, 3], [2, 3], "float", "float", [1, 2])
    table = ask("layout_copies", op("aten::contiguous", 0, 50), op("aten::copy_", 10, 30, **args))
    assert csv(table, "movement", "op", "calls", "total_ns", "moved_bytes", "bytes_status") == snapshot("""\
movement,op,calls,total_ns,moved_bytes,bytes_status
make contiguous,aten::contiguous,1,30000,24,estimated
make contiguous,aten::contiguous,1,20000,-,not_derivable
""")


def test_shapes_that_are_none_end_no_answer() -> None:
    for dims in ([["x"], 3], {"a": 1}, [[[2], 3], []], []):
        table = ask("layout_copies", moved(0, 10, 1, "aten::copy_", Input_Dims=dims, Input_type=["float", "float"]))
        assert table.frame["total_ns"].to_list() == [10_000]


def test_a_run_without_copies_says_so() -> None:
    table = ask("layout_copies", *work("gemm", 20, 30, 1, op_name="aten::mm"))
    assert table.frame.height == 0
    assert "Nothing in the run" in notes(table)


@pytest.mark.parametrize("name", ["h100-qwen1.5-0.5b.json.gz", "h100-timesformer-math.json.gz"])
def test_bytes_of_a_real_trace_are_those_of_its_shapes(name: str, traces: Path) -> None:
    path = traces / name
    raw = independent.read(path.read_bytes())
    casts = straight = casting_ns = straight_ns = 0
    for piece, inner, _ in independent.places_of_work(raw, independent.device_work(raw)):
        if inner["name"] == "aten::copy_" and not piece.name.startswith("Mem"):
            args = independent.args(inner)
            size = SIZES[args["Input type"][0]]
            for extent in args["Input Dims"][0]:
                size *= extent
            is_cast = args["Input type"][0] != args["Input type"][1]
            casts, straight = casts + size * is_cast, straight + size * (not is_cast)
            casting_ns += piece.duration * is_cast
            straight_ns += piece.duration * (not is_cast)
    with trace_file(path) as opened:
        found = opened.query("layout_copies", top=0).frame.filter(bytes_status="estimated")
    cast = found["movement"] == "cast"
    assert (found.filter(cast)["moved_bytes"].sum(), found.filter(cast)["total_ns"].sum()) == (casts, casting_ns)
    assert (found.filter(~cast)["moved_bytes"].sum(), found.filter(~cast)["total_ns"].sum()) == (straight, straight_ns)
    assert straight > 0


def test_copies_of_the_driver_in_a_real_trace_have_the_bytes_of_the_file(traces: Path) -> None:
    path = traces / "v100-training-memory.json.gz"
    raw = independent.read(path.read_bytes())
    copies = [row for row in raw if row.get("cat") == "gpu_memcpy"]
    with trace_file(path) as opened:
        found = opened.query("layout_copies", top=0).frame.filter(bytes_status="exact")
    assert found["calls"].sum() == len(copies)
    assert found["moved_bytes"].sum() == sum(int(independent.args(row)["bytes"]) for row in copies)
    assert found["total_ns"].sum() == sum(span.end - span.start for span in map(independent.span, copies))


def test_copies_of_no_time_have_no_share_of_attention() -> None:
    around = op("aten::scaled_dot_product_attention", 0, 50, Input_Dims=[[1, 2, 8, 8]] * 3, Input_type=["float"] * 3)
    copied = {"device": 0, "stream": 7, "correlation": 1, "bytes": 4}
    copy = event("gpu_memcpy", "Memcpy DtoD", 20, 0, pid=0, tid=7, args=copied)
    table = ask("layout_copies", around, op("aten::copy_", 10, 4), launch(11, 1), copy)
    assert table.frame.select("role", "total_ns", "share_frac").rows() == [("attention.layout", 0, None)]
    assert "of the time of attention" not in notes(table)
