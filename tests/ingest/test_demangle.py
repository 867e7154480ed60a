"""Mangled C++ names are shown as people read them, the profiler's own kept beside, and no name can do harm."""

from __future__ import annotations

import string
import time
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.build import document, kernel, op, tables
from tracekit.ingest import read_bytes
from tracekit.ingest.demangle import demangled, readable

if TYPE_CHECKING:
    from pathlib import Path

MANGLED = "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64ELi8ELb0ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_S4_diiiiiiib"
PLAIN = (
    "void aiter::add_rmsnorm_quant_kernel<std::bfloat16_t, std::bfloat16_t, 64, 8, false, false, true, 1>"
    "(std::bfloat16_t*, std::bfloat16_t*, float*, std::bfloat16_t*, std::bfloat16_t*, std::bfloat16_t*, "
    "double, int, int, int, int, int, int, int, bool)"
)


def doubling(times: int) -> str:
    """Mangle a function whose every argument names the one before it twice."""
    digits = string.digits + string.ascii_uppercase
    numbers = ["".join((digits[at // 36] if at >= 36 else "", digits[at % 36])) for at in range(times)]
    return "_Z1f1AIiiE" + "".join(f"S_IS{number}_S{number}_E" for number in numbers)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (MANGLED, PLAIN),
        ("_ZN5aiter42pa_bf16_pertokenFp8_gqa10_1tg_4w_mtp3_msk1E", "aiter::pa_bf16_pertokenFp8_gqa10_1tg_4w_mtp3_msk1"),
        ("_Z4fillPfif", "fill(float*, int, float)"),
        ("_ZN12_GLOBAL__N_14fillIdEEvPT_", "void (anonymous namespace)::fill<double>(double*)"),
    ],
)
def test_a_mangled_name_is_spelled_out(name: str, expected: str) -> None:
    assert demangled(name) == expected


@pytest.mark.parametrize(
    "name",
    ["", "_Z", "_Zjunk", "_ZN2at6nat", "triton_poi_fused_0", "f", "?foo@@YAXXZ", "_RNvC3foo3bar", "void f<int>()"],
)
def test_what_is_no_mangled_name_of_cpp_stays_as_it_is(name: str) -> None:
    assert demangled(name) is None


@pytest.mark.parametrize("name", [doubling(18), doubling(500), f"_Z{'N' * 10**5}", f"_Z1f{'P' * 10**5}i"])
def test_a_name_that_would_be_absurdly_long_stays_as_it_is_and_costs_nothing(name: str) -> None:
    start = time.perf_counter()
    assert demangled(name) is None
    assert time.perf_counter() - start < 1
    assert demangled(doubling(3)) is not None


@given(st.text(st.sampled_from("NSEIKPRTLXJDFiflvdb_0123456789.\0é"), max_size=60))
def test_no_name_breaks_the_reading(rest: str) -> None:
    found = demangled(f"_Z{rest}")
    assert found is None or 0 < len(found) <= 2**14


def test_a_column_keeps_the_profiler_s_own_name_only_where_it_differs() -> None:
    names, raw = readable(pl.Series(["gemm", MANGLED, "_Zjunk", None, MANGLED]))
    assert names.to_list() == ["gemm", PLAIN, "_Zjunk", None, PLAIN]
    assert raw.to_list() == [None, MANGLED, None, None, MANGLED]


def test_families_and_questions_see_the_readable_name() -> None:
    found = tables(op("aten::add", 0, 9), kernel(MANGLED, 20, 3, 1), kernel("gemm", 30, 3, 2))["kernel"]
    assert found["name"].to_list() == [PLAIN, "gemm"]
    assert found["raw_name"].to_list() == [MANGLED, None]
    assert found["family"].to_list()[0] == "norm"


def test_the_reading_of_a_trace_without_mangled_names_changes_none() -> None:
    device = read_bytes(document(kernel("gemm", 1, 2)), "hand.json").device
    assert (device["name"].item(), device["raw_name"].item()) == ("gemm", None)


def test_the_mangled_kernels_of_a_real_trace_are_all_spelled_out(traces: Path) -> None:
    path = traces / "mi300x-sglang-prefill-decode.json.gz"
    device = read_bytes(path.read_bytes(), path.name).device
    named = device.filter(pl.col("raw_name").is_not_null())
    assert (named.height, named["raw_name"].n_unique()) == (217, 5)
    assert device["name"].str.starts_with("_Z").sum() == 0
