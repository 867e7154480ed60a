"""The built-in decoder, recorded as planned: puts model, attention, workload and recorder together.

Owns the checks that only torch and the device can make, and the facts that the plan holds.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import torch

from tracekit.errors import TracekitError

from .faults import memory_faults
from .implementations import implementation
from .model import build
from .model_facts import model_facts
from .recorder import Recorder, Recording
from .workloads import check_attention, workload

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .settings import Plan


def record(
    plan: Plan,
    output: Path,
    *,
    device: str | None = None,
    dtype: str | None = None,
    label: Mapping[str, str] | None = None,
    overwrite: bool = False,
) -> Recording:
    """Record the planned steps of the built-in decoder into a bundle.

    Raises TracekitError for what this torch or device can't do, and all that `Recorder.run` raises.
    """
    device = _device(device)
    kind: torch.dtype = getattr(torch, dtype or ("float32" if device == "cpu" else "bfloat16"))
    chosen = implementation(plan.implementation)
    with memory_faults("lower --batch, --seq, --layers or --heads"):
        check_attention(plan, chosen, device, kind)
        model = build(plan.shape, chosen.attend, device=device, dtype=kind, seed=plan.seed)
        steps = workload(plan, model, device)
    sizes = {**asdict(plan.shape), "hidden": plan.shape.hidden, "intermediate": plan.shape.intermediate}
    facts = replace(model_facts(model), **sizes)
    recorder = Recorder(
        output, label=label, model=facts, workload=_facts(plan, device), device=device, overwrite=overwrite
    )
    with chosen.forced():
        return recorder.run(steps.step, plan.steps, plan.warmup, reset=steps.reset)


def _device(asked: str | None) -> str:
    """Return the device to run on; raises TracekitError if there is no CUDA device and one was asked for."""
    has_cuda = torch.cuda.is_available()
    if asked != "cuda" or has_cuda:
        return asked or ("cuda" if has_cuda else "cpu")
    is_built = torch.version.cuda is not None or torch.version.hip is not None
    reason = "finds none" if is_built else "was built without CUDA"
    raise TracekitError(f"there is no CUDA device: torch {torch.__version__} {reason}", "record with --device cpu")


def _facts(plan: Plan, device: str) -> dict[str, object]:
    """Return the workload's facts beside its label."""
    return {
        "mode": plan.mode,
        "implementation": plan.implementation,
        "device": device,
        "cache": plan.cache,
        "batch": plan.batch,
        "seq": plan.seq,
        "mask": plan.mask,
        "lengths": {"form": plan.lengths.form, "numbers": [*plan.lengths.numbers]} if plan.lengths else None,
        "seed": plan.seed,
        "warmup": plan.warmup,
    }
