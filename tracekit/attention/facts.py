"""Facts beside a trace: true lengths, labels, versions, step times without the profiler.

Owns the reading of `facts.json`, whose fields `tracekit.capture.facts` documents. It trusts nothing in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Mapping


_Tokens = Annotated[int, msgspec.Meta(ge=1, le=2**24)]  # so that a batch's pairs fit 64 bits
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class StepFacts(msgspec.Struct, kw_only=True):
    """What is true of one step: lengths of its sequences in tokens, and the mask they were given."""

    number: _Count
    lengths: list[_Tokens] | None = None
    padded_length: _Tokens | None = None
    query_length: _Tokens | None = None
    mask_kind: str | None = None
    is_whole: bool = True


class WorkloadFacts(msgspec.Struct, kw_only=True):
    """What was run."""

    mode: str | None = None
    implementation: str | None = None
    label: dict[str, str] = {}


class Facts(msgspec.Struct, kw_only=True):
    """The facts that the analysis reads; other fields of the file are kept there and not looked at.

    `environment` and `settings` are JSON as it stands: versions and hardware, and torch's switches.
    """

    facts_version: int = 1
    torch_version: str | None = None
    workload: WorkloadFacts | None = None
    steps: list[StepFacts] = []
    unprofiled_step_ns: list[_Count] = []
    environment: Any = None
    settings: Any = None


def read_facts(content: Mapping[str, object]) -> Facts:
    """Return the facts in a bundle's facts.json. Raises TracekitError if a field is not what it must be."""
    try:
        facts = msgspec.convert(content, Facts)
    except msgspec.ValidationError as error:
        raise TracekitError(f"facts.json: {error}", "record the run again with `tracekit capture`") from error
    if len({step.number for step in facts.steps}) < len(facts.steps):
        raise TracekitError("facts.json: two steps have one number", "record the run again")
    for step in facts.steps:
        if step.lengths and step.padded_length and max(step.lengths) > step.padded_length:
            raise TracekitError(
                f"facts.json: step {step.number} has a length above its padded_length", "record the run again"
            )
    return facts
