"""Occupancy recomputed: by hand, and against what the profiler recorded where its figure is sound."""

from __future__ import annotations

import gzip
import json
from math import prod
from typing import TYPE_CHECKING

import pytest

from tracekit.attention.devices.occupancy import Residency, residency

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_SHARED = 49152
RECORDED = {
    "v100-ns-epoch.json.gz", "a100-sam-sdpa.json.gz", "rtx4080-nanovllm-decode.json", "h100-nanogpt-before.json.gz",
    "h100-qwen1.5-0.5b.json.gz", "h100-timesformer-math.json.gz", "b200-vllm-eager.json.gz", "a100-nccl.json.gz",
}  # fmt: skip


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "blocks", "limits"),
    [
        # 255 registers: 8,160 a warp, 8,192 in steps of 256; two warps a partition, eight an SM, four a block.
        ("8.0", 128, 255, 0, 2, ("registers",)),
        # 240 registers: 7,680 a warp; two warps a partition, eight an SM, which is one block of eight.
        ("8.0", 256, 240, 0, 1, ("registers",)),
        # 163 KiB + 1 KiB of 228 KiB; 12 warps of 168 registers: 5,376 a warp, three a partition.
        ("9.0", 384, 168, 163 * 1024, 1, ("registers", "shared memory")),
        ("8.0", 1024, 16, 0, 2, ("threads",)),
        ("8.0", 32, 16, 0, 32, ("blocks",)),
        ("8.9", 32, 16, 0, 24, ("blocks",)),
        ("7.5", 32, 16, 0, 16, ("blocks",)),
        # 1 KiB is kept back for each block from 8.0 on: 100 KiB hold three of 32 KiB there, and 96 KiB three before.
        ("8.6", 128, 32, 32 * 1024, 3, ("shared memory",)),
        ("7.0", 128, 32, 32 * 1024, 3, ("shared memory",)),
        # 33 threads are two warps.
        ("8.0", 33, 255, 0, 4, ("registers",)),
        ("9.0", 128, 0, 0, 16, ("threads",)),
    ],
)
def test_blocks_by_hand(
    capability: str, threads: int, registers: int, shared: int, blocks: int, limits: tuple[str, ...]
) -> None:
    found = residency(capability, threads, registers, shared)
    assert found is not None
    assert (found.blocks, found.limits) == (blocks, limits)


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared"),
    [("9.4", 128, 32, 0), (None, 128, 32, 0), ("9.0", 0, 32, 0), ("9.0", 128, 32, 233_000), ("9.0", 1024, 255, 0)],
)
def test_what_is_not_known_or_can_t_run_has_none(
    capability: str | None, threads: int, registers: int, shared: int
) -> None:
    assert residency(capability, threads, registers, shared) is None


def test_occupancy_is_of_the_threads_of_all_multiprocessors() -> None:
    found = residency("8.0", 128, 255, 0)
    assert found == Residency(2, ("registers",), 0.0625)
    assert found.occupancy_frac == 0.125
    assert found.achieved_frac(10_000, 108) == 0.125
    assert found.achieved_frac(54, 108) == 0.03125


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_it_is_what_the_profiler_recorded_for_every_kernel_within_48_kib(traces: Path, name: str) -> None:
    data = (traces / name).read_bytes()
    document = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
    device = document["deviceProperties"][0]
    capability = f"{device['computeMajor']}.{device['computeMinor']}"
    differing, compared = [], 0
    for event in document["traceEvents"]:
        args = event.get("args") or {}
        recorded = args.get("est. achieved occupancy %", args.get("theoretical occupancy %"))
        if recorded is None or args["shared memory"] > DEFAULT_SHARED:
            continue
        compared += 1
        found = residency(capability, prod(args["block"]), args["registers per thread"], args["shared memory"])
        assert found is not None
        if abs(100 * found.achieved_frac(prod(args["grid"]), device["numSms"]) - recorded) > 1:
            differing.append((args, recorded))
    assert differing == []
    assert compared > 10


@pytest.mark.parametrize("name", ["a100-sam-sdpa.json.gz", "h100-nanogpt-before.json.gz", "b200-vllm-eager.json.gz"])
def test_the_profiler_s_figure_above_48_kib_is_0_and_ours_is_not(traces: Path, name: str) -> None:
    document = json.loads(gzip.decompress((traces / name).read_bytes()))
    device = document["deviceProperties"][0]
    capability = f"{device['computeMajor']}.{device['computeMinor']}"
    large = [event["args"] for event in document["traceEvents"] if event.get("cat") == "kernel"]
    large = [args for args in large if args["shared memory"] > DEFAULT_SHARED]
    assert large
    assert {args["est. achieved occupancy %"] for args in large} == {0}
    for args in large:
        found = residency(capability, prod(args["block"]), args["registers per thread"], args["shared memory"])
        assert found is not None
        assert found.occupancy_frac > 0.05
