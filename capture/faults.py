"""Faults of the machine that torch reports in many ways, told in one.

Owns how running out of memory is recognised.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Iterator

# source: pytorch c10/core/impl/alloc_cpu.cpp, which raises a RuntimeError
_CPU_SIGNS = ("DefaultCPUAllocator", "not enough memory: you tried to allocate")
_SIZE = re.compile(r"tried to allocate ([\d.]+ \w+)", re.IGNORECASE)


def out_of_memory(error: BaseException) -> str:
    """Return in a few words that memory ran out, or nothing if `error` says something else."""
    text = str(error)
    if not isinstance(error, MemoryError | torch.OutOfMemoryError) and not any(sign in text for sign in _CPU_SIGNS):
        return ""
    size = _SIZE.search(text)
    return f"out of memory (it tried to allocate {size[1]})" if size else "out of memory"


@contextmanager
def memory_faults(remedy: str) -> Iterator[None]:
    """Turn running out of memory into a TracekitError with this remedy; let all else pass."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if problem := out_of_memory(error):
            raise TracekitError(problem, remedy) from error
        raise
