"""The kinds of SDPA calls of a run, and the rules' verdict on each.

Owns which calls are alike and what the trace says of where they ran; the rules are the room attention's.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tracekit.attention.backends.remedies import Step
    from tracekit.attention.backends.verdict import Verdict
    from tracekit.attention.calls.arguments import Argument
    from tracekit.store import Store

_DEVICES = {"cuda": "cuda", "rocm": "rocm", "xpu": "xpu", "mps": "mps"}
_WRAPPER = "aten::scaled_dot_product_attention"
_KINDS = """
    select
        min(a.trace_id) as trace_id,
        o.name,
        o.input_dims,
        o.input_types,
        o.input_strides,
        o.concrete_inputs,
        a.backend as ran,
        bool_or(o.sequence_number is not null) as has_sequence_number,
        bool_or(b.forward_op_id is not null) as has_backward,
        list(a.call_id) as call_ids,
        count(*) as calls,
        sum(coalesce(a.device_ns, a.host_ns))::bigint as ns
    from attention_call as a
    join op as o on o.op_id = a.op_id
    left join (select distinct forward_op_id from op where forward_op_id is not null) as b on b.forward_op_id = o.op_id
    where a.implementation = 'sdpa' and a.phase <> 'backward'
    group by o.name, o.input_dims, o.input_types, o.input_strides, o.concrete_inputs, a.backend
    order by ns desc nulls last, calls desc, o.name, o.input_dims, o.input_types, o.concrete_inputs
"""
_TRACES = """
    select
        trace_id, vendor, device_name, compute_capability, torch_version, has_device, environment_json, settings_json
    from trace
"""
_SEEN = """
    select trace_id, name, coalesce(input_dims, '') as input_dims
    from op
    where name like 'aten::%'
    group by all
    order by all
"""


class Judged(NamedTuple):
    """A kind of call by the names of its arguments, and the verdict on it; None where its inputs can't be read.

    The switches that were recorded may not be those of the call: a `sdpa_kernel` block changes them. Where what ran
    shows that, the verdict takes them as unknown.
    """

    arguments: Mapping[str, Argument]
    verdict: Verdict
    has_other_switches: bool = False


def kinds(store: Store) -> list[dict[str, Any]]:
    """Return the kinds of SDPA calls outside backward, those with most time first."""
    return store.rows(_KINDS)


def environments(store: Store) -> dict[int, dict[str, Any]]:
    """Return by trace what is known of where it was recorded, as `Environment` takes it."""
    from tracekit.attention.backends.facts import backend_facts
    from tracekit.attention.backends.releases import releases_of
    from tracekit.attention.calls.arguments import read_inputs

    seen: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for row in store.rows(_SEEN):
        counts = seen[row["trace_id"]][row["name"]]
        if row["input_dims"]:
            counts.add(len(read_inputs(row["input_dims"], None, None, None)))
    found = {}
    for row in store.rows(_TRACES):
        major, dot, minor = (row["compute_capability"] or "").partition(".")
        found[row["trace_id"]] = {
            "device": _DEVICES.get(row["vendor"] or "", "cuda") if row["has_device"] else "cpu",
            "device_name": row["device_name"] or None,
            "capability": (int(major), int(minor)) if dot and major.isdecimal() and minor.isdecimal() else None,
            "torch_version": row["torch_version"],
            "releases": releases_of(seen[row["trace_id"]]).releases,
            "facts": backend_facts(row["environment_json"], row["settings_json"]),
        }
    return found


def judged(kind: Mapping[str, Any], around: Mapping[int, Mapping[str, Any]]) -> Judged | None:
    """Return the verdict on a row of `kinds`, `around` being that of `environments`."""
    from tracekit.attention.backends.facts import is_switch
    from tracekit.attention.backends.readings import Environment
    from tracekit.attention.backends.rows import gradients_needed, wrapper_arguments
    from tracekit.attention.backends.verdict import judge
    from tracekit.attention.calls.arguments import arguments

    is_wrapper = kind["name"] == _WRAPPER
    named = arguments(
        kind["name"], kind["input_dims"], kind["input_types"], kind["input_strides"], kind["concrete_inputs"]
    )
    if named is None:
        return None
    saves = named["compute_log_sumexp"].value if "compute_log_sumexp" in named else None
    needed = gradients_needed(
        has_sequence_number=kind["has_sequence_number"] if is_wrapper else None,
        saves_log_sumexp=saves if isinstance(saves, bool) else None,
        has_backward=kind["has_backward"] or None,
    )
    known = around[kind["trace_id"]]
    given = named if is_wrapper else wrapper_arguments(kind["name"], named)

    def verdict_by(facts: Mapping[str, object]) -> Verdict:
        environment = {**known, "facts": {**facts, "wrapper": is_wrapper}}
        return judge(given, Environment(**environment, needs_grad=needed), kind["ran"])

    verdict = verdict_by(known["facts"])
    others = {name: fact for name, fact in known["facts"].items() if not is_switch(name)}
    if verdict.agrees is False and len(others) < len(known["facts"]):
        open_verdict = verdict_by(others)
        if open_verdict.problem is None:  # else no switch explains what ran
            return Judged(named, open_verdict, has_other_switches=True)
    return Judged(named, verdict)


def in_words(steps: Iterable[Step]) -> str:
    """Return what to change as one text, each step with its caveat."""
    return "; ".join(f"{step.change} (but {step.caveat})" for step in steps)
