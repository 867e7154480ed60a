"""Releases by what the rows of a trace show of them."""

from __future__ import annotations

import pytest

from tracekit.attention.backends.releases import is_exact, known_releases, release_of, releases_of, span_of

SDPA = "aten::scaled_dot_product_attention"
FLASH = "aten::_flash_attention_forward"
EFFICIENT = "aten::_efficient_attention_forward"


@pytest.mark.parametrize(
    ("ops", "span"),
    [
        ({}, "2.0.0 to 2.14"),
        ({"aten::mm": {2}}, "2.0.0 to 2.14"),
        ({SDPA: {6}}, "2.0.0 to 2.0.1"),
        ({SDPA: {7}}, "2.1 to 2.4"),
        ({SDPA: {7}, FLASH: {11}}, "2.1 to 2.3"),
        ({SDPA: {7}, FLASH: {11}, EFFICIENT: {13}}, "2.1 to 2.2"),
        ({SDPA: {7}, EFFICIENT: {14}}, "2.3 to 2.4"),
        ({SDPA: {8}, FLASH: {15}}, "2.5.0 to 2.11"),
        ({SDPA: {8}, FLASH: {17}}, "2.12 to 2.14"),
        ({"aten::_cudnn_attention_forward": {15}}, "2.14"),
        ({"aten::_cudnn_attention_forward": ()}, "2.7 to 2.14"),
        ({"aten::_safe_softmax": {3}}, "2.5.0 to 2.14"),
        ({"aten::_scaled_dot_product_flash_attention_for_cpu": {7}}, "2.3 to 2.14"),
        ({"torch_attn::_varlen_attn": ()}, "2.10 to 2.14"),
        ({SDPA: {99}}, "2.0.0 to 2.14"),
        ({SDPA: {7}, FLASH: {17}}, ""),
    ],
)
def test_releases_are_told_by_ops_and_their_arguments(ops: dict[str, set[int]], span: str) -> None:
    assert span_of(releases_of(ops).releases) == span


def test_the_rows_that_tell_are_named() -> None:
    assert releases_of({SDPA: {7}, FLASH: {11}, "aten::_scaled_dot_product_flash_attention": {7}}).reasons == (
        f"{SDPA} has 7 arguments",
        f"{FLASH} has 11 arguments",
    )


@pytest.mark.parametrize(
    ("version", "release", "exact"),
    [
        ("2.13.0+cpu", "2.13", True),
        ("2.6.0+rocm6.2", "2.6", True),
        ("2.5.1", "2.5.1", True),
        ("2.5.0", "2.5.0", True),
        ("2.0.1+cu118", "2.0.1", True),
        ("2.9.0.dev20250901+cu128", "2.9", False),
        ("2.7.0a0+7c8ec84dab.nv25.03", "2.7", False),
        ("1.13.1", None, False),
        ("2.99.0", None, False),
        ("", None, False),
    ],
)
def test_a_version_is_a_release_or_near_one(version: str, release: str | None, exact: bool) -> None:  # noqa: FBT001
    assert release_of(version) == release
    assert is_exact(version) is exact


def test_a_span_joins_neighbours() -> None:
    assert span_of(("2.7", "2.6", "2.14", "2.10")) == "2.6 to 2.7, 2.10, 2.14"
    assert span_of(known_releases()) == "2.0.0 to 2.14"
