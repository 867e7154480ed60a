"""The verdict on calls that torch makes here, on the CPU, against the backend that torch takes."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from tests.attention.backends.recorded import WRAPPER, Row, rows_of
from tracekit.attention.backends.readings import Environment
from tracekit.attention.backends.releases import release_of
from tracekit.attention.backends.verdict import Verdict, judge
from tracekit.attention.backends.verdict_words import in_sentences
from tracekit.attention.calls.arguments import Argument

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VERSION = str(torch.__version__)
pytestmark = pytest.mark.skipif(release_of(VERSION) != "2.13", reason="the cases are those of torch 2.13")

FACTS = {"flash_enabled": True, "math_enabled": True, "mask_requires_grad": False}
HERE = Environment("cpu", torch_version=VERSION, facts=FACTS)
MASK_GRAD = Environment("cpu", torch_version=VERSION, facts={**FACTS, "mask_requires_grad": True})
CHOICES = {0: "math", 1: "flash"}
"""What `torch._fused_sdp_choice` returns."""

Call = dict[str, Any]


def qkv(q: tuple[int, ...], k: tuple[int, ...] | None = None, v: tuple[int, ...] | None = None, **rest: Any) -> Call:
    """Return a call of random tensors; keys are like queries and values like keys unless told."""
    k = q if k is None else k
    dtype = rest.pop("dtype", torch.float32)
    shapes = (q, k, k if v is None else v)
    return dict(zip(("query", "key", "value"), (torch.randn(shape).to(dtype) for shape in shapes), strict=True)) | rest


def turned() -> Call:
    return {name: torch.randn(2, 4, 16, 8).transpose(2, 3) for name in ("query", "key", "value")}


def cut() -> Call:
    """Return tensors of a head_dim of 1, cut of one of 2, so that their last stride is 2."""
    return {name: torch.randn(2, 4, 8, 2)[..., ::2] for name in ("query", "key", "value")}


FULL = (2, 4, 8, 16)
ONES = torch.ones(8, 8, dtype=torch.bool)
CASES: dict[str, tuple[Call, str, str | None]] = {
    "plain": (qkv(FULL), "flash", None),
    "float64": (qkv(FULL, dtype=torch.float64), "flash", None),
    "float16": (qkv(FULL, dtype=torch.float16), "flash", None),
    "bfloat16": (qkv(FULL, dtype=torch.bfloat16), "flash", None),
    "an odd head_dim": (qkv((2, 4, 8, 7)), "flash", None),
    "a head_dim of 1": (qkv((2, 4, 8, 1)), "flash", None),
    "a large head_dim": (qkv((2, 4, 8, 512)), "flash", None),
    "causal": (qkv(FULL, is_causal=True), "flash", None),
    "causal with more keys": (qkv(FULL, (2, 4, 12, 16), is_causal=True), "flash", None),
    "causal with fewer keys": (qkv(FULL, (2, 4, 3, 16), is_causal=True), "flash", None),
    "causal and a mask": (qkv(FULL, is_causal=True, attn_mask=ONES), "flash", None),
    "gradients": ({name: each.requires_grad_() for name, each in qkv(FULL).items()}, "flash", None),
    "expanded heads": (
        {**qkv(FULL), "key": torch.randn(2, 1, 8, 16).expand(FULL), "value": torch.randn(2, 1, 8, 16).expand(FULL)},
        "flash",
        None,
    ),
    "a transposed projection": (
        {name: torch.randn(2, 8, 4, 16).transpose(1, 2) for name in ("query", "key", "value")},
        "flash",
        None,
    ),
    "grouped heads": (qkv(FULL, (2, 2, 8, 16), enable_gqa=True), "flash", None),
    "no batch": (qkv((0, 4, 8, 16)), "flash", None),
    "dropout": (qkv(FULL, dropout_p=0.1), "math", "CPU-04"),
    "three dims": (qkv((4, 8, 16)), "math", "CPU-05"),
    "five dims": (qkv((1, 2, 4, 8, 16)), "math", "CPU-05"),
    "a mask of three dims": (qkv(FULL, attn_mask=torch.ones(4, 8, 8)), "math", "CPU-07"),
    "a mask that is learnt": (qkv(FULL, attn_mask=torch.ones(8, 8, requires_grad=True)), "math", "CPU-07"),
    "values of another head_dim": (qkv(FULL, FULL, (2, 4, 8, 8)), "math", "CPU-09"),
    "one batch for all": (qkv(FULL, (1, 4, 8, 16)), "math", "CPU-10"),
    "one key-value head": (qkv(FULL, (2, 1, 8, 16)), "math", "CPU-12"),
    "values of fewer heads": (qkv(FULL, (2, 2, 8, 16), (2, 1, 8, 16), enable_gqa=True), "math", "CPU-12b"),
    "no queries": (qkv((2, 4, 0, 16), FULL), "math", "CPU-14"),
    "no keys": (qkv(FULL, (2, 4, 0, 16)), "math", "CPU-14"),
    "a transposed head_dim": (turned(), "math", "CPU-15"),
    "a head_dim of 1 that was cut": (cut(), "math", "CPU-15"),
    "one transposed tensor": ({**qkv(FULL), "key": turned()["key"]}, "math", "CPU-15"),
}
"""A call, the backend that torch takes by our own trial, and the rule that refuses flash."""

MASKS = [(8, 8), (1, 8), (8, 1), (1, 1), (2, 4, 8, 8), (2, 1, 8, 8), (1, 1, 8, 8), (2, 4, 1, 8), (1, 1, 1, 1)]
CASES |= {
    f"a mask {[*shape]} of {dtype}": (qkv(FULL, attn_mask=torch.ones(shape, dtype=dtype)), "flash", None)
    for shape in MASKS
    for dtype in (torch.bool, torch.float32)
}
CASES |= {
    "a mask of a larger stride": (qkv(FULL, attn_mask=torch.ones(8, 16)[:, ::2]), "flash", None),
    "a mask that was expanded": (qkv(FULL, attn_mask=torch.ones(8, 1).expand(8, 8)), "flash", None),
    "a float32 mask with bfloat16": (qkv(FULL, dtype=torch.bfloat16, attn_mask=torch.ones(8, 8)), "flash", None),
}


def recorded(calls: list[Call], folder: Path) -> list[Row]:
    """Make calls under the profiler and return the wrapper's row of each."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        for each in calls:
            torch.nn.functional.scaled_dot_product_attention(**each)
    path = folder / "trace.json"
    profiler.export_chrome_trace(str(path))
    events = json.loads(path.read_text("utf-8"))["traceEvents"]
    places = sorted(event["ts"] for event in events if event["name"] == WRAPPER)
    assert len(places) == len(calls)
    return [
        rows_of([event for event in events if event.get("cat") == "cpu_op" and start <= event["ts"] < end])[0]
        for start, end in zip(places, [*places[1:], float("inf")], strict=True)
    ]


def argument(value: object) -> Argument:
    """Return what a trace holds of a value."""
    if isinstance(value, torch.Tensor):
        return Argument(tuple(value.shape), str(value.dtype).removeprefix("torch."), value.stride(), None)
    return Argument(None, None, None, value)


def arguments(called: Call) -> dict[str, Argument]:
    """Return all arguments of a call, those not given as their defaults."""
    defaults = {"attn_mask": None, "dropout_p": 0.0, "is_causal": False, "scale": None, "enable_gqa": False}
    return {name: argument(value) for name, value in (defaults | called).items()}


def environment(called: Call) -> Environment:
    mask = called.get("attn_mask")
    return MASK_GRAD if mask is not None and mask.requires_grad else HERE


def refusing(verdict: Verdict) -> list[str]:
    return [
        reason.rule
        for backend in verdict.backends
        for reason in backend.reasons
        if backend.name == "flash" and reason.refuses
    ]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    """Return the row of each case, as the profiler recorded it."""
    found = recorded([called for called, _, _ in CASES.values()], tmp_path_factory.mktemp("calls"))
    return dict(zip(CASES, found, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_on_a_recorded_call_is_what_torch_took(name: str, rows: dict[str, Row]) -> None:
    called, backend, rule = CASES[name]
    row = rows[name]
    is_empty = any(0 in called[each].shape for each in ("query", "key", "value"))
    assert row.ran == (None if is_empty else backend)
    verdict = judge(row.arguments, environment(called), row.ran)
    assert (verdict.predicted, verdict.predicted_certainty) == (backend, "certain")
    assert refusing(verdict) == ([] if rule is None else [rule])
    assert verdict.problem is None
    assert any(lint.rule == "EXIT-01" for lint in verdict.lints) is is_empty


@pytest.mark.parametrize("name", CASES)
def test_a_call_made_by_hand_is_read_as_the_recorded_one(name: str, rows: dict[str, Row]) -> None:
    called = CASES[name][0]
    assert torch._fused_sdp_choice(**called) == {"math": 0, "flash": 1}[CASES[name][1]]
    assert judge(arguments(called), environment(called)) == judge(rows[name].arguments, environment(called))


def test_flash_that_is_switched_off_is_refused_for_that_alone() -> None:
    called = qkv(FULL)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        choice = torch._fused_sdp_choice(**called)
    off = Environment("cpu", torch_version=VERSION, facts={**FACTS, "flash_enabled": False})
    verdict = judge(arguments(called), off)
    assert (verdict.predicted, refusing(verdict)) == (CHOICES[choice], ["CPU-02"])


def test_nested_tensors_are_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors of this layout are a prototype
        nested = torch._nested_tensor_from_tensor_list([torch.randn(4, 8, 16), torch.randn(4, 5, 16)])
    choice = torch._fused_sdp_choice(nested, nested, nested)
    told = Environment("cpu", torch_version=VERSION, facts={**FACTS, "nested": True})
    unknown = Argument(None, None, None, None)
    verdict = judge(arguments({}) | dict.fromkeys(("query", "key", "value"), unknown), told)
    assert (verdict.predicted, refusing(verdict)) == (CHOICES[choice], ["CPU-03"])


TROUBLES = (
    "batch",
    "heads",
    "head_dim",
    "value only",
    "length",
    "rank",
    "dtype",
    "layout",
    "mask",
    "gradient",
    "dropout",
)


@st.composite
def calls(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Call:
    """Return a call that flash takes, but for at most two things that may trouble it.

    There is always a head: torch 2.13 divides by the key-value heads and dies of none with enable_gqa.
    """
    troubles = draw(st.sets(st.sampled_from(TROUBLES), max_size=2))
    batch, heads, queries, keys, dim = (draw(st.sampled_from([1, 2, 4])) for _ in range(5))
    shapes = [[batch, heads, queries, dim], [batch, heads, keys, dim], [batch, heads, keys, dim]]
    for trouble, at, sizes in (("batch", 0, [0, 1, 3]), ("heads", 1, [1, 2, 3]), ("head_dim", 3, [0, 1, 3])):
        if trouble in troubles:
            size = draw(st.sampled_from(sizes))
            for shape in shapes[2 if "value only" in troubles else 1 :]:
                shape[at] = size
    if "length" in troubles:
        shapes[draw(st.sampled_from([0, 1]))][2] = 0
        shapes[2][2] = shapes[1][2]
    rank = draw(st.sampled_from([2, 3])) if "rank" in troubles else 4
    dtypes = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
    found: Call = {}
    for name, shape in zip(("query", "key", "value"), shapes, strict=True):
        dtype = draw(st.sampled_from([*dtypes, torch.int32])) if "dtype" in troubles else torch.float32
        tensor = torch.zeros(shape[4 - rank :], dtype=dtype)
        found[name] = tensor.mT.contiguous().mT if "layout" in troubles and draw(st.booleans()) else tensor
    if draw(st.booleans()):
        full = [batch, heads, shapes[0][2], shapes[1][2]]
        sizes = [[each, 1, 3] if "mask" in troubles else [each, 1] for each in full]
        dims = [draw(st.sampled_from(each)) for each in sizes]
        dims = dims[-draw(st.sampled_from([2, 3, 4] if "mask" in troubles else [2, 4])) :]
        found["attn_mask"] = torch.zeros(dims, requires_grad="gradient" in troubles)
    found["dropout_p"] = 0.5 if "dropout" in troubles else 0.0
    found["is_causal"] = draw(st.booleans())
    found["enable_gqa"] = draw(st.booleans())
    return found


@settings(max_examples=400)
@given(calls())
def test_the_verdict_on_any_call_is_what_torch_chooses(called: Call) -> None:
    verdict = judge(arguments(called), environment(called))
    assert verdict.predicted == CHOICES[torch._fused_sdp_choice(**called)]
    assert verdict.certainty == "certain"


def test_three_falls_back_to_math_as_they_are_told(rows: dict[str, Row]) -> None:
    names = ("values of another head_dim", "dropout", "three dims")
    assert [in_sentences(judge(rows[name].arguments, HERE, rows[name].ran)) for name in names] == snapshot(
        [
            [
                "math ran (certain), predicted math (certain); torch 2.13 tries flash, math",
                "flash: refused: query, key and value must have one head_dim; head_dim of query, key, value = 16, 16, 8 (CPU-09, certain)",
                "for flash: give values the head_dim of queries and keys: pad and cut; or, where they must differ, use efficient, cuDNN or FlexAttention; but: the padding is computed too; efficient takes values of another head_dim as they are (R06 for CPU-09)",
                "flash would then take the call",
            ],
            [
                "math ran (certain), predicted math (certain); torch 2.13 tries flash, math",
                "flash: refused: no dropout; dropout_p = 0.1 (CPU-04, certain)",
                "for flash: attention dropout of 0 (in evaluation always), for cuDNN a multiple of 1/16; but: training without dropout differs (R16 for CPU-04)",
                "flash would then take the call",
            ],
            [
                "math ran (certain), predicted math (certain); torch 2.13 tries flash, math",
                "flash: refused: query, key and value must have 4 dims; dims of query, key, value = 3, 3, 3 (CPU-05, certain)",
                "for flash: reshape to [batch, heads, length, head_dim]: unsqueeze, or flatten the batch dims; but: costs nothing: they are views (R10 for CPU-05)",
                "flash would then take the call",
            ],
        ]
    )


@pytest.mark.parametrize(
    "name", ["values of another head_dim", "dropout", "three dims", "one batch for all", "a transposed head_dim"]
)
def test_a_remedy_that_says_flash_would_take_the_call_is_right(name: str) -> None:
    """Apply what the remedy says to the real call, and ask torch again."""
    remedied = {
        "values of another head_dim": qkv(FULL),
        "dropout": qkv(FULL),
        "three dims": {each: tensor.unsqueeze(0) for each, tensor in qkv((4, 8, 16)).items()},
        "one batch for all": {each: tensor.expand(FULL) for each, tensor in qkv(FULL, (1, 4, 8, 16)).items()},
        "a transposed head_dim": {each: tensor.contiguous() for each, tensor in turned().items()},
    }
    (remedy,) = judge(arguments(CASES[name][0]), HERE).remedies
    assert (remedy.backend, remedy.is_eligible) == ("flash", True)
    assert torch._fused_sdp_choice(**remedied[name]) == 1
