"""Kernels without an op have the role of kernels among the same neighbours, where all of those agree."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tracekit.attention.roles.sequences import found_elsewhere, found_in_kernels
from tracekit.loading import tables_of

if TYPE_CHECKING:
    from pathlib import Path

LAYER = ["norm", "gemm", "mul", "add", "gemm", "silu", "gemm", "add2"]
ROLES = ["norm", "qkv", "rope", "rope", "out", "mlp", "mlp", "residual"]


def stream(names: list[str], linked: list[bool], number: int = 7) -> pl.DataFrame:
    rows = [
        {"name": name, "op_id": at if has_op else None, "device": 0, "stream": number, "start_ns": 10 * at}
        for at, (name, has_op) in enumerate(zip(names, linked, strict=True))
    ]
    schema = {"name": pl.String, "op_id": pl.Int64, "device": pl.Int64, "stream": pl.Int64, "start_ns": pl.Int64}
    return pl.DataFrame(rows, schema=schema).with_row_index("kernel_id")


def test_a_lost_layer_has_the_roles_of_those_that_follow() -> None:
    kernels = stream(LAYER * 4, [False] * 8 + [True] * 24)
    told = found_elsewhere(kernels, ["unlinked"] * 8 + ROLES * 3)
    assert {row: finding.role for row, finding in told.items()} == dict(enumerate(ROLES[3:], 3))  # 3 have no neighbours
    assert {finding.reason for finding in told.values()} == {
        "kernels of the same names in the same order, with an op, have it"
    }


def test_neighbours_that_disagree_tell_nothing() -> None:
    kernels = stream(LAYER * 4, [False] * 8 + [True] * 24)
    other = ["norm", "qkv", "rope", "rope", "out", "moe", "mlp", "residual"]
    told = found_elsewhere(kernels, ["unlinked"] * 8 + ROLES + other + ROLES)
    assert 5 not in told
    assert told[6].role == "mlp"


def test_a_role_that_a_name_tells_is_kept_and_other_tells_nothing() -> None:
    kernels = stream(LAYER * 3, [False] * 8 + [True] * 16)
    vague = [*ROLES[:6], "other", "residual"]
    told = found_elsewhere(kernels, ["unlinked"] * 5 + ["norm"] + ["unlinked"] * 2 + vague * 2)
    assert sorted(told) == [3, 4, 7]


def test_the_order_on_one_stream_says_nothing_of_another() -> None:
    lost, known = stream(LAYER, [False] * 8, 8), stream(LAYER * 2, [True] * 16)
    kernels = pl.concat([lost, known.with_columns(kernel_id=pl.col("kernel_id") + 8)])
    told = found_elsewhere(kernels, ["unlinked"] * 8 + ROLES * 2)
    assert {told[row].role for row in (3, 4)} == {"rope", "out"}  # its own order is the same
    mixed = stream([name for name in LAYER for _ in range(2)], [False] * 16)
    assert found_elsewhere(pl.concat([mixed, known]), ["unlinked"] * 16 + ROLES * 2) == {}


@pytest.mark.parametrize(
    ("name", "told_at_least"),
    [
        ("h100-qwen1.5-0.5b", 200),
        ("h100-nanogpt-before", 650),
        ("b200-vllm-eager", 140),
        ("mi300x-sglang-prefill-decode", 70),
        ("a100-sam-sdpa", 1000),
        ("mi300x-resnet-checkpointing", 400),
    ],
)
def test_what_is_told_of_kernels_whose_ops_are_hidden_is_what_their_ops_say(
    name: str, told_at_least: int, traces: Path
) -> None:
    kernels = tables_of((traces / f"{name}.json.gz").read_bytes(), name)["kernel"].sort("kernel_id")
    truth = kernels["role"].to_list()
    linked = [row for row, op in enumerate(kernels["op_id"].to_list()) if op is not None]
    hidden = set(linked[: len(linked) // 5])
    has_op = pl.Series([row not in hidden for row in range(kernels.height)])
    blind = kernels.with_columns(pl.when(has_op).then(pl.col("op_id")).alias("op_id"))
    told = found_elsewhere(blind, ["unlinked" if row in hidden else role for row, role in enumerate(truth)])
    pairs = Counter((truth[row], told[row].role) for row in hidden if row in told)
    assert all(true == said for true, said in pairs)
    assert pairs.total() >= told_at_least


def pieces(names: list[str], split: str) -> pl.DataFrame:
    """Return kernels of one stream: `split` has an op and lies between replays, each of what lies between."""
    made = stream(names, [name == split for name in names])
    return made.with_columns(launch_id=pl.col("op_id").is_not_null().cum_sum() * 2 + pl.col("op_id").is_not_null())


def test_a_model_captured_in_pieces_is_read_across_them() -> None:
    norm, gemm, rope = "rms_norm_kernel", "Cijk_Alik_Bljk_BBS_BH", "rotary_embedding_kernel"
    names = [norm, gemm, rope, "flash_fwd_kernel", "Cijk_other", norm, "_matmul_ogs", norm, gemm, rope] * 2
    roles = ["norm", "unlinked", "attention.rope", "attention.core", "unlinked", "norm", "moe", "norm", "unlinked"]
    told = found_in_kernels(pieces(names, "flash_fwd_kernel"), [*roles, "attention.rope"] * 2)
    assert {row: finding.role for row, finding in told.items()} == {
        **dict.fromkeys((1, 11), "attention.qkv_proj"),
        **dict.fromkeys((4, 14), "attention.out_proj"),
    }


@pytest.mark.parametrize(
    ("name", "told_at_least"),
    [("b200-vllm-eager", 70), ("mi300x-sglang-prefill-decode", 70), ("h100-qwen1.5-0.5b", 40)],
)
def test_what_is_told_of_pieces_is_what_their_ops_say(name: str, told_at_least: int, traces: Path) -> None:
    """Hide the ops of all but the cores, as if a model were captured in pieces, and hold what order tells to them."""
    kernels = tables_of((traces / f"{name}.json.gz").read_bytes(), name)["kernel"]
    kernels = (
        kernels.filter(pl.col("op_id").is_not_null()).sort("start_ns").drop("kernel_id").with_row_index("kernel_id")
    )
    is_core = pl.col("role") == "attention.core"
    blind = kernels.with_columns(
        launch_id=is_core.cum_sum() * 2 + is_core, op_id=pl.when(is_core).then(pl.col("op_id"))
    )
    is_told = kernels["family"].str.contains("gemm|copy|elementwise").fill_null(value=True)
    roles = ["unlinked" if hides else role for hides, role in zip(is_told, kernels["role"], strict=True)]
    told = found_in_kernels(blind, roles)
    linears = {"attention.qkv_proj", "attention.out_proj"}
    pairs = Counter((kernels["role"][row], finding.role) for row, finding in told.items() if finding.role in linears)
    assert all(true == said for true, said in pairs), pairs
    assert pairs.total() >= told_at_least


def test_linears_of_a_real_model_captured_in_pieces_are_told(traces: Path) -> None:
    # By hand: 24 layers, each norm, linear, rope, cache, attention, linear, norm, router, experts.
    path = traces / "rocm-vllm-piecewise-graph.json.gz"
    kernels = tables_of(path.read_bytes(), path.name)["kernel"].filter(family="tensile_gemm")
    counts = dict(kernels.group_by("role").len().iter_rows())
    assert counts == {"attention.qkv_proj": 24, "attention.out_proj": 24, "unlinked": 24, "lm_head": 1}
    assert set(kernels.filter(pl.col("role").str.starts_with("attention"))["role_confidence"]) == {"inferred"}
