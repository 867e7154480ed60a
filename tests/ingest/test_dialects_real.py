"""What is found of each real trace: its dialect, its vendor, what its External ids name. Checked against the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.conftest import TRACES
from tracekit.ingest import Recording, read_bytes

if TYPE_CHECKING:
    from pathlib import Path

FILES = {str(path.relative_to(TRACES)): path for path in sorted(TRACES.rglob("*.json*"))}
NAMES = {name: name.removesuffix(".gz").removesuffix(".json") for name in FILES}

OLD, US, NOW = "kineto-2021-epoch", "kineto-epoch-us", "kineto-relative"
FOUND: dict[str, tuple[str, bool | None, str | None, str, int]] = {
    "a100-nccl": (NOW, False, "cuda", "op", 1),
    "a100-sam-compile": (US, False, "cuda", "correlation", 1000),
    "a100-sam-math": (US, False, "cuda", "correlation", 1000),
    "a100-sam-sdpa": (US, False, "cuda", "correlation", 1000),
    "a100-streams-sync": (US, False, "cuda", "op", 1000),
    "a100-triton": (NOW, False, "cuda", "op", 1),
    "b200-vllm-eager": (NOW, True, "cuda", "op", 1),
    "cpu-only": (NOW, False, "cpu", "none", 1),
    "gpu-sampled-rank0": (US, True, "cuda", "correlation", 1000),
    "gpu-sampled-rank1": (US, True, "cuda", "correlation", 1000),
    "h100-bert-small": (NOW, True, "cuda", "op", 1),
    "h100-ddp-small": (NOW, False, "cuda", "none", 1),
    **{f"h100-nanogpt-8ranks/rank{rank}": (NOW, False, "cuda", "op", 1) for rank in range(8)},
    "h100-nanogpt-after": (NOW, False, "cuda", "op", 1),
    "h100-nanogpt-before": (NOW, False, "cuda", "op", 1),
    "h100-qwen1.5-0.5b": (NOW, True, "cuda", "op", 1),
    "h100-timesformer-math": (NOW, True, "cuda", "op", 1),
    "large-integer": ("kineto-relative-no-base", True, None, "none", 1000),
    "legacy-categories": (OLD, False, "cuda", "op", 1000),
    "mi210-gpu-only": (NOW, False, "rocm", "none", 1),
    "mi250-training": (NOW, False, "rocm", "op", 1),
    "mi300x-bert-small": (NOW, True, "rocm", "op", 1),
    "mi300x-compile-triton": (NOW, False, "rocm", "op", 1),  # one of 12 ids equals the correlation by chance
    "mi300x-flux-diffusion": (NOW, False, "rocm", "op", 1),
    "mi300x-qwen1.5-0.5b": (NOW, True, "rocm", "op", 1),
    "mi300x-resnet-checkpointing": (NOW, False, "rocm", "op", 1),
    "mi300x-sglang-decode-graph": (NOW, True, "rocm", "op", 1),
    "mi300x-sglang-decode-graph-capture": (NOW, False, "rocm", "op", 1),
    "mi300x-sglang-prefill-decode": (NOW, True, "rocm", "op", 1),
    "mtia-inference": (NOW, False, "mtia", "none", 1),
    "no-rank": (US, False, None, "none", 1000),  # ops alone, of a job whose backend is nccl, which AMD's is called too
    "rocm-vllm-decode-graph": (NOW, True, "rocm", "op", 1),
    "rocm-vllm-piecewise-graph": (NOW, True, "rocm", "op", 1),
    "rtx4080-nanovllm-decode": (NOW, False, "cuda", "op", 1),
    "rtx4080-nanovllm-forward": (NOW, False, "cuda", "op", 1),
    "v100-ns-epoch": (
        "kineto-epoch-ns",
        False,
        "cuda",
        "op",
        1,
    ),  # each fraction has three digits, a tenth begin with 0
    "v100-resnet-2021": (OLD, False, "cuda", "op", 1000),
    "v100-training-memory": (US, False, "cuda", "correlation", 1000),
}
"""By file: dialect, is_rewritten, vendor, external_ids, time_resolution_ns."""


def facts(said: Recording) -> tuple[str, bool | None, str | None, str, int]:
    return said.dialect, said.is_rewritten, said.vendor, said.external_ids, said.time_resolution_ns


@pytest.mark.parametrize("name", FILES)
def test_what_is_found_of_a_real_trace_is_true_of_the_file(name: str) -> None:
    said = read_bytes(FILES[name].read_bytes(), name).recording
    assert facts(said) == FOUND[NAMES[name]]


def test_every_real_trace_is_in_the_table() -> None:
    assert not FILES or set(NAMES.values()) == FOUND.keys()


def test_the_work_of_an_mtia_device_is_found(traces: Path) -> None:
    """Of its 1,313 rows on the device, 339 note an event or wait for one."""
    path = traces / "mtia-inference.json.gz"
    events = read_bytes(path.read_bytes(), path.name)
    counts = events.device.group_by("kind").agg(pl.len()).sort("kind").rows()
    assert counts == [("kernel", 97), ("memcpy", 877)]
    assert events.device["stream"].unique().sort().to_list() == list(range(101, 113))
    assert events.device["device"].unique().to_list() == [17]
    assert events.device.filter(pl.col("kind") == "memcpy")["bytes"].null_count() == 0
    assert events.other["category"].is_in(["mtia_ccp_events"]).sum() == 339
