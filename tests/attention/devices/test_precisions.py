"""The number format of products by kernel name: every row is proved by its example, and the traps of the field."""

from __future__ import annotations

import re
import tomllib
from importlib import resources

import polars as pl
import pytest

from tests.build import Event, tables, work
from tracekit.attention.devices.precisions import compute_dtypes, precision_of

TEXT = resources.files("tracekit.attention.devices").joinpath("precisions.toml").read_text("utf-8")
ROWS: list[dict[str, str]] = tomllib.loads(TEXT)["precision"]
DTYPES = {"float64", "float32", "tf32", "bfloat16", "float16", "float8", "int8"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['dtype']}-{row['example'][:40]}")
def test_a_row_is_the_first_that_matches_its_example(row: dict[str, str]) -> None:
    assert next(other for other in ROWS if re.search(other["pattern"], row["example"])) == row
    assert precision_of(row["example"]) == row["dtype"]


def test_rows_have_the_agreed_keys_and_words_and_each_format_is_there() -> None:
    assert {frozenset(row) for row in ROWS} == {frozenset({"dtype", "pattern", "example", "source"})}
    assert {row["dtype"] for row in ROWS} == DTYPES


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("volta_sgemm_128x32_nt", "float32"),
        ("void magma_sgemmEx_kernel<float, float, float, true, false, 6, 4, 6, 3, 4>(int, int)", "float32"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(int)", "float32"),
        ("cudnn_infer_volta_scudnn_128x64_relu_xregs_large_nn_v1", "float32"),
        ("void precomputed_convolve_sgemm<__nv_bfloat16, 512, 6, 7, 4, 3, 5, 1, false>(int, int)", "float32"),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "bfloat16"),
        ("void cutlass::Kernel<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x1_tn_align8>(int)", "bfloat16"),
        ("ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x6_tn", "float16"),
        ("volta_h884gemm_64x64_ldg8_nn", "float16"),
        ("void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_128x64_32x3_nhwc>(int)", "tf32"),
        ("nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_v_bz_TNT", "float8"),
        ("nvjet_rqsss_144x128_128x6_1x2_h_bz_coopA_algo2_TNN", "float8"),
        ("Cijk_Ailk_Bjlk_SB_Bias_AS_SAV_UserArgs_MT64x16x16_MI16x16x1_SN", "float32"),
        ("Cijk_Ailk_Bjlk_BBS_BH_Bias_HAS_SAV_UserArgs_MT128x64x32", "bfloat16"),
    ],
)
def test_names_of_the_field_say_their_format(name: str, dtype: str) -> None:
    assert precision_of(name) == dtype


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, false>(int)",
        "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true, cublasGemvTensorStridedBatched<float const>>(int)",
        "void flash::flash_fwd_splitkv_combine_kernel_without_types",
        "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_6_128x64x64_4x1x1_cga1x1x1_kernel0_0",
        "triton_tem_fused_addmm_0",
        "Memcpy DtoD (Device -> Device)",
    ],
)
def test_a_name_that_leaves_it_open_says_nothing(name: str) -> None:
    assert precision_of(name) is None


def test_the_column_is_in_the_order_of_the_names() -> None:
    names = pl.Series(["volta_sgemm_32x128_tt", "mystery", "volta_sgemm_32x128_tt", "nvjet_tst_64x64_64x16_TNT"])
    assert compute_dtypes(names).to_list() == ["float32", None, "float32", "bfloat16"]
    assert compute_dtypes(pl.Series([], dtype=pl.String)).dtype == pl.String


def test_kernels_have_it_in_their_table() -> None:
    events: list[Event] = [
        *work("volta_sgemm_32x128_tt", 20, 10, 1, op_name="aten::mm"),
        *work("x", 50, 5, 2, op_name="y"),
    ]
    assert tables(events)["kernel"].select("name", "compute_dtype").rows() == [
        ("volta_sgemm_32x128_tt", "float32"),
        ("x", None),
    ]
