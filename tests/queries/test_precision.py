"""In which format kernels multiply and whether it fits their inputs: by hand, and on real traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from inline_snapshot import snapshot

from tests import independent
from tests.build import Event, ask, csv, kernel, launch, notes, op, tables, trace_file, work
from tracekit.errors import TracekitError
from tracekit.run import Run
from tracekit.store import Limits, Selection

if TYPE_CHECKING:
    from pathlib import Path

SGEMM = "ampere_sgemm_128x128_tn"
BF16 = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
FP16 = "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x6_tn"
TF32 = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4>(int)"
FP8 = "nvjet_qqtst_192x192_128x4_1x2_h_bz_coopB_TNN"


def product(name: str, at: float, length: float, correlation: int, *types: str, dims: Any = None) -> list[Event]:
    """Make a matrix product of tensors of these types."""
    args = {"Input_Dims": dims or [[2, 2] for _ in types], "Input_type": list(types)} if types else {}
    return [
        op("aten::mm", at, 4, **args),
        launch(at + 2, correlation),
        kernel(name, at + 5, length, correlation),
    ]


@pytest.mark.parametrize(
    ("name", "types", "finding"),
    [
        (SGEMM, ("c10::BFloat16", "c10::BFloat16"), "upcast"),
        (SGEMM, ("c10::Half", "c10::Half"), "upcast"),
        (SGEMM, ("float", "float"), None),
        (TF32, ("float", "float"), "tf32"),
        (TF32, ("c10::BFloat16", "c10::BFloat16"), "upcast"),
        (BF16, ("c10::BFloat16", "c10::BFloat16"), None),
        (BF16, ("float", "float"), "downcast"),
        (BF16, ("c10::BFloat16", "float"), None),
        (BF16, ("c10::Half", "c10::Half"), "other format"),
        (FP16, ("c10::BFloat16", "c10::BFloat16"), "other format"),
        (FP16, ("c10::Half", "c10::Half"), None),
        (FP8, ("c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "float"), None),
        (FP8, ("c10::BFloat16", "c10::BFloat16"), "downcast"),
        (SGEMM, ("long int", "Scalar"), None),
        ("mystery_gemm", ("float", "float"), None),
    ],
)
def test_a_format_is_held_against_all_of_the_inputs(name: str, types: tuple[str, ...], finding: str | None) -> None:
    assert ask("precision", product(name, 0, 10, 1, *types)).frame["finding"].to_list() == [finding]


def test_findings_come_first_and_rows_have_their_op_and_kernel() -> None:
    table = ask(
        "precision",
        product(BF16, 0, 70, 1, "c10::BFloat16", "c10::BFloat16"),
        product(SGEMM, 100, 20, 2, "c10::BFloat16", "c10::BFloat16"),
        work("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)", 200, 10, 3,
             op_name="aten::add"),
    )  # fmt: skip
    assert csv(table) == snapshot("""\
finding,family,compute_dtype,input_dtypes,op,calls,total_ns,share_frac,kernel
upcast,cublas_gemm,float32,bfloat16,aten::mm,1,20000,0.2,ampere_sgemm_128x128_tn
-,cublas_gemm,bfloat16,bfloat16,aten::mm,1,70000,0.7,ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn
""")
    assert notes(table) == snapshot("info: Products whose names tell their format take 90.0 % of device time.\n")


def test_all_shows_other_work_too_and_the_shares_are_the_same() -> None:
    events = [*product(SGEMM, 0, 30, 1, "float", "float"), *work("multi_tensor_apply_kernel", 50, 10, 2, op_name="x")]
    table = ask("precision", *events, all=True)
    assert csv(table, "family", "compute_dtype", "input_dtypes", "share_frac") == snapshot("""\
family,compute_dtype,input_dtypes,share_frac
cublas_gemm,float32,float32,0.75
multi_tensor_apply,-,-,0.25
""")
    assert ask("precision", *events).frame["share_frac"].to_list() == [0.75]


def test_scalars_and_indices_are_no_inputs() -> None:
    types = ("c10::BFloat16", "c10::BFloat16", "float", "long int", "Scalar", "")
    dims = [[2, 2], [2, 2], [], [2], [], []]
    assert csv(ask("precision", product(BF16, 0, 10, 1, *types, dims=dims)), "finding", "input_dtypes") == snapshot("""\
finding,input_dtypes
-,bfloat16
""")


def test_without_input_types_nothing_is_found_and_a_note_says_what_to_record() -> None:
    table = ask("precision", product(SGEMM, 0, 10, 1))
    assert csv(table, "finding", "compute_dtype", "input_dtypes") == snapshot("""\
finding,compute_dtype,input_dtypes
-,float32,-
""")
    assert notes(table) == snapshot("""\
info: Products whose names tell their format take 100.0 % of device time.
not_derivable: No input types were recorded, so no format can be held against them:
record_shapes=True.
""")


def test_a_product_without_an_op_has_its_format_alone() -> None:
    table = ask("precision", kernel(BF16, 20, 10, 99), product(SGEMM, 0, 10, 1, "float", "float"))
    assert csv(table, "compute_dtype", "input_dtypes", "op") == snapshot("""\
compute_dtype,input_dtypes,op
bfloat16,-,-
float32,float32,aten::mm
""")


def test_a_run_without_a_known_product_says_so() -> None:
    table = ask("precision", *work("mystery", 20, 30, 1, op_name="my::op"))
    assert table.frame.height == 0
    assert "No kernel's name tells a format" in notes(table)


def test_types_that_are_none_end_no_answer() -> None:
    for types in ("x", ["float"], {"a": 1}):
        events = [op("aten::mm", 0, 4, Input_Dims=[[2], [2]], Input_type=types), launch(2, 1), kernel(SGEMM, 5, 10, 1)]
        assert ask("precision", *events).frame["calls"].to_list() == [1]


def test_without_a_device_it_says_what_to_record() -> None:
    with pytest.raises(TracekitError) as caught:
        ask("precision", op("aten::mm", 0, 10))
    assert "ProfilerActivity.CUDA" in str(caught.value)


def test_products_of_a_real_trace_in_float32_and_tf32_are_those_of_the_file(traces: Path) -> None:
    path = traces / "a100-sam-math.json.gz"
    raw = independent.read(path.read_bytes())
    works = independent.device_work(raw)
    full = sum(piece.duration for piece in works if "sgemm" in piece.name)
    rounded = [
        (piece.duration, independent.args(inner)["Input type"][0])
        for piece, inner, _ in independent.places_of_work(raw, works)
        if "s1688" in piece.name or "tf32" in piece.name
    ]
    assert {kind for _, kind in rounded} == {"float"}
    with trace_file(path) as opened:
        table = opened.query("precision")
    found = table.frame
    assert found.filter(compute_dtype="float32")["total_ns"].sum() == full
    assert found.filter(finding="tf32")["total_ns"].sum() == sum(duration for duration, _ in rounded)
    share = 100 * full / sum(piece.duration for piece in works)
    assert f"{share:.1f} % of device time multiplies in float32 without tensor cores" in notes(table).replace("\n", " ")


def test_all_of_the_work_of_a_real_trace_is_there_once(traces: Path) -> None:
    path = traces / "h100-nanogpt-before.json.gz"
    works = independent.device_work(independent.read(path.read_bytes()))
    with trace_file(path) as opened:
        found = opened.query("precision", all=True).frame
    assert found["total_ns"].sum() == sum(piece.duration for piece in works)
    assert found["calls"].sum() == len(works)
    assert found["share_frac"].sum() == pytest.approx(1)
    eights = sum(piece.duration for piece in works if piece.name.startswith(("nvjet_q", "nvjet_r")))
    assert found.filter(compute_dtype="float8")["total_ns"].sum() == eights > 0
    assert found["finding"].is_null().all()


def test_a_bundle_of_an_older_tracekit_says_that_it_holds_no_formats() -> None:
    older = {name: rows.lazy() for name, rows in tables(product(SGEMM, 0, 10, 1, "float", "float")).items()}
    older["kernel"] = older["kernel"].drop("compute_dtype")
    with Run("old.tkb", older, Selection(), Limits()) as opened:
        table = opened.query("precision")
    assert csv(table, "finding", "family", "compute_dtype", "input_dtypes") == snapshot("""\
finding,family,compute_dtype,input_dtypes
-,cublas_gemm,-,float32
""")
    assert "load the trace anew" in notes(table)
