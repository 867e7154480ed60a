"""Which implementations this torch has, and how one that it lacks is told."""

from __future__ import annotations

import pytest
import torch
from inline_snapshot import snapshot

from tracekit.capture.implementations import implementation, probe, repeat_kv
from tracekit.capture.settings import IMPLEMENTATIONS
from tracekit.errors import TracekitError


def attend_once(name: str, dtype: torch.dtype = torch.float32) -> None:
    """Attend over grouped heads on the CPU."""
    q, kv = torch.zeros(1, 4, 3, 8, dtype=dtype), torch.zeros(1, 2, 3, 8, dtype=dtype)
    probe(implementation(name), q, kv, None, is_causal=True)


def test_the_cpu_has_these_and_no_others() -> None:
    found = []
    for name in IMPLEMENTATIONS:
        try:
            attend_once(name)
        except TracekitError:
            continue
        found.append(name)
    assert found == ["auto", "math", "flash", "naive"]


def test_a_missing_kernel_is_one_line_with_what_to_do() -> None:
    with pytest.raises(TracekitError) as caught:
        attend_once("efficient")
    line = str(caught.value).replace(torch.__version__, "VERSION")
    assert line == snapshot(
        "torch VERSION has no efficient attention for this float32 call on cpu: "
        "choose another --impl: auto takes what there is, math and naive always run"
    )


def test_the_reasons_that_torch_gives_are_in_the_line() -> None:
    q, kv = torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 3, 4)
    with pytest.raises(TracekitError, match=r"no flash attention for this float32 call on cpu \(.*Query.*8.*Key.*4"):
        probe(implementation("flash"), q, kv, None, is_causal=True)


def test_another_fault_in_the_call_is_not_a_missing_kernel() -> None:
    q, kv = torch.zeros(1, 2, 3, 8), torch.zeros(2, 2, 3, 8)
    with pytest.raises(RuntimeError, match="size"):
        probe(implementation("naive"), q.expand(3, -1, -1, -1), kv, None, is_causal=True)


def test_repeated_heads_stand_next_to_each_other_and_single_ones_are_not_copied() -> None:
    kv = torch.arange(2.0).view(1, 2, 1, 1)
    assert repeat_kv(kv, 3).flatten().tolist() == [0, 0, 0, 1, 1, 1]
    assert repeat_kv(kv, 1) is kv
