"""How many blocks of a kernel an SM holds at once, recomputed from what a trace records of the launch.

Owns that calculation. The profiler's own figure is 0 for every kernel with more than 48 KiB of shared memory, which
is nearly every fused attention. Clusters and a kernel's preferred carve-out are not in a trace: it is an estimate.
"""

from __future__ import annotations

from typing import NamedTuple

from tracekit.attention.knowledge import load

_UNLIMITED = 2**20
"""Blocks that would fit by a resource of which they use nothing."""


class Residency(NamedTuple):
    """Blocks of a kernel that an SM holds at once, and what keeps it from holding more.

    `limits` names it: threads, blocks, registers, shared memory; several where they bind alike. `block_frac` is the
    share of an SM's threads that one block has.
    """

    blocks: int
    limits: tuple[str, ...]
    block_frac: float

    @property
    def occupancy_frac(self) -> float:
        """Return the share of an SM's threads that are resident when there are blocks enough."""
        return self.blocks * self.block_frac

    def achieved_frac(self, grid_blocks: int, sm_count: int) -> float:
        """Return the share of all threads that a grid of so many blocks keeps resident: what Kineto estimates."""
        return min(self.blocks, grid_blocks / sm_count) * self.block_frac


def residency(capability: str | None, threads: int, registers: int, shared_bytes: int) -> Residency | None:
    """Return the residency of blocks of so many threads, registers a thread and bytes of shared memory.

    None for an architecture that is not known, and for a block that it can't hold. The rules are those of NVIDIA's
    occupancy calculator.
    """
    rules = load("devices/devices")
    sm, warp = rules["residency"].get(capability), rules["warp"]
    if sm is None or threads <= 0:
        return None
    warps = -(-threads // warp["threads"])
    limits = {
        "threads": sm["threads"] // warp["threads"] // warps,
        "blocks": sm["blocks"],
        "registers": _by_registers(sm, warp, warps, registers),
        "shared memory": _by_shared(sm, shared_bytes),
    }
    least = min(limits.values())
    if least == 0:
        return None
    binding = tuple(name for name, blocks in limits.items() if blocks == least)
    return Residency(least, binding, threads / sm["threads"])


def _by_registers(sm: dict[str, int], warp: dict[str, int], warps: int, registers: int) -> int:
    """Return the blocks whose registers fit: each of an SM's partitions holds whole warps of its own registers."""
    if registers <= 0:
        return _UNLIMITED
    of_warp = _up(registers * warp["threads"], warp["register_step"])
    return warp["partitions"] * (sm["registers"] // warp["partitions"] // of_warp) // warps


def _by_shared(sm: dict[str, int], shared_bytes: int) -> int:
    """Return the blocks whose shared memory fits, 0 for more than a block may have."""
    if shared_bytes > sm["shared_of_block"]:
        return 0
    of_block = _up(shared_bytes + sm["reserved"], sm["step"])
    return sm["shared"] // of_block if of_block else _UNLIMITED


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
