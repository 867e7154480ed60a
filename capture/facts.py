"""What a recording knows and a trace can't hold: the content of a bundle's `facts.json`.

Owns the names of the facts; `document` lists all of them. Must not import torch, and must hold nothing that names a
host, a user, a path or an environment variable.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FACTS_VERSION = 1
"""Raised when a fact changes its meaning; new facts may join without."""

STEP_MARK = "tracekit|step="
"""The annotation around each recorded step is this and the step's number, from 0."""


@dataclass(frozen=True)
class StepFacts:
    """What one step worked on: the true lengths of its sequences, and how far they were padded.

    `lengths`: key tokens of each sequence that are real: in a decode step, those in the cache with the new one.
    `padded_length`: key tokens of each sequence that attention is given; a static cache's capacity.
    `query_length`: query tokens of each sequence that every layer is given; `padded_length` unless said otherwise.
    `mask`: how attention is told: `causal` (the flag is_causal), `dense` (a mask tensor) or `none`.
    `mask_kind`: what it lets be seen: `causal`, `causal_padding`, `padding` or `none`.
    `padding_side`: `right` or `left` of the real tokens.
    """

    lengths: tuple[int, ...]
    padded_length: int
    mask: str = "none"
    mask_kind: str = "none"
    query_length: int | None = None
    padding_side: str = "right"

    def as_dict(self) -> dict[str, object]:
        """Return the fields as JSON takes them, with `sequences` and `tokens`, the query tokens that are real."""
        queries = self.padded_length if self.query_length is None else self.query_length
        return {
            **asdict(self),
            "lengths": [*self.lengths],
            "query_length": queries,
            "sequences": len(self.lengths),
            "tokens": sum(min(length, queries) for length in self.lengths),
        }


@dataclass(frozen=True)
class ModelFacts:
    """The shape and the size of a model; what isn't known is None."""

    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    hidden: int | None = None
    intermediate: int | None = None
    vocab: int | None = None
    dtype: str | None = None
    parameters: int | None = None
    parameter_bytes: int | None = None


@dataclass(frozen=True)
class StepTimes:
    """Host time of each step in ns, the device's end awaited: without the profiler, and inside the window."""

    unprofiled_ns: Sequence[int]
    profiled_ns: Sequence[int]


def document(
    *,
    environment: Mapping[str, object],
    settings: Mapping[str, object],
    model: ModelFacts,
    workload: Mapping[str, object],
    steps: Sequence[StepFacts | None],
    times: StepTimes,
) -> dict[str, object]:
    """Return `facts.json` as a dictionary.

    | key | what it holds |
    |---|---|
    | `facts_version` | FACTS_VERSION |
    | `torch_version` | the version that recorded |
    | `environment` | versions, host and devices: see `environment.environment` |
    | `settings` | torch's switches in force during the steps: see `environment.settings` |
    | `model` | ModelFacts |
    | `workload` | `label`, and for the built-in decoder `mode`, `implementation`, `cache`, `batch`, `seq`, ... |
    | `steps` | one object a step in the window: see below |
    | `unprofiled_step_ns` | time of each step before the window, without the profiler |
    | `profiled_step_ns` | time of each whole step in the window |
    | `synchronized_each_step` | true: both times end when the device is done |

    A step has its `number` as in its annotation, `is_whole` (false where it was cut), and the fields of StepFacts with
    `sequences` and `tokens`, all null where the step told none.
    """
    unknown = dict.fromkeys(StepFacts((), 0).as_dict())
    whole = len(times.profiled_ns)
    told = [(unknown if step is None else step.as_dict()) for step in steps]
    return {
        "facts_version": FACTS_VERSION,
        "torch_version": environment["torch"],
        "environment": {**environment},
        "settings": {**settings},
        "model": asdict(model),
        "workload": {**workload},
        "steps": [{"number": number, "is_whole": number < whole, **step} for number, step in enumerate(told)],
        "unprofiled_step_ns": [*times.unprofiled_ns],
        "profiled_step_ns": [*times.profiled_ns],
        "synchronized_each_step": True,
    }
