"""Verdicts on calls typed by hand: orders by release and device, what is not known, what contradicts, what to change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from tests.attention.backends.sdpa import NONE, call, where
from tracekit.attention.backends.readings import Environment
from tracekit.attention.backends.releases import known_releases
from tracekit.attention.backends.rows import backend_of, gradients_needed, wrapper_arguments
from tracekit.attention.backends.verdict import Backend, Verdict, judge
from tracekit.attention.backends.verdict_words import in_sentences
from tracekit.attention.calls.arguments import Argument

DENSE = {"flash_enabled": True, "efficient_enabled": True, "math_enabled": True, "flash_built": True, "system": "Linux"}
HEAD_128 = (2, 8, 64, 128)


def backend(verdict: Verdict, name: str) -> Backend:
    return next(each for each in verdict.backends if each.name == name)


def rules(verdict: Verdict, name: str, *, refuses: bool | None = True) -> list[str]:
    return [reason.rule for reason in backend(verdict, name).reasons if reason.refuses is refuses]


# --- the order -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sm", "version", "first"),
    [
        (80, "2.0.1", "efficient"),  # head_dim 128
        (80, "2.1.2", "efficient"),
        (80, "2.2.2", "flash"),
        (80, "2.4.1", "flash"),
        (80, "2.5.0", "flash"),
        (90, "2.5.0", "cudnn"),
        (90, "2.5.1", "flash"),
        (90, "2.8.0", "flash"),
        (90, "2.9.1", "cudnn"),
        (100, "2.9.1", "cudnn"),
        (103, "2.9.1", "flash"),
        (90, "2.10.0", "flash"),
        (90, "2.11.0", "cudnn"),
        (103, "2.13.0", "cudnn"),
        (89, "2.13.0", "flash"),
        (120, "2.14.0", "flash"),
        (101, "2.13.0", "flash"),
        (101, "2.14.0", "cudnn"),
    ],
)
def test_the_first_backend_is_that_of_the_release_and_the_device(sm: int, version: str, first: str) -> None:
    verdict = judge(call(HEAD_128), where(sm=sm, torch_version=version))
    assert (verdict.predicted, verdict.predicted_certainty) == (first, "likely")


@pytest.mark.parametrize(
    ("told", "first"),
    [
        ({"cudnn_version": 91501}, "cudnn"),
        ({"cudnn_version": 91500}, "flash"),
        ({"cudnn_version": 91501, "cudnn_sdpa_deprioritized": True}, "flash"),
        ({"priority": ["efficient_attention", "math"]}, "efficient"),
        ({"priority": ["cudnn_attention", "flash_attention", "math"]}, "cudnn"),
        ({"flash_enabled": False}, "efficient"),
    ],
)
def test_facts_that_were_captured_decide_the_order(told: dict[str, Any], first: str) -> None:
    assert judge(call(HEAD_128), where(sm=90, torch_version="2.10.0", facts=told)).predicted == first


@pytest.mark.parametrize(
    ("shape", "needs_grad", "first"),
    [
        ((1024, 8, 7, 16), False, "flash"),
        ((1, 16, 4096, 64), False, "efficient"),  # few heads, long queries
        ((1, 16, 127, 64), False, "flash"),  # one block of 64 queries is not twice as many
        ((2, 64, 4096, 128), False, "efficient"),
        ((1, 8, 48, 64), True, "flash"),
        ((1, 8, 47, 64), True, "efficient"),
    ],
)
def test_2_1_weighs_flash_and_efficient_by_shape(shape: tuple[int, ...], needs_grad: bool, first: str) -> None:  # noqa: FBT001
    assert judge(call(shape), where(torch_version="2.1.0", needs_grad=needs_grad)).predicted == first


def test_an_order_that_hangs_on_gradients_is_not_known_without_them() -> None:
    verdict = judge(call((1, 8, 47, 64)), where(torch_version="2.1.0", needs_grad=None))
    assert (verdict.predicted, verdict.predicted_certainty) == (None, "unknown")
    assert set(verdict.possible) == {"efficient", "flash"}


# --- calls whose backend is known ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("called", "environment", "ran"),
    [
        (call((25, 16, 196, 80), mask=(25, 16, 196, 196)), where(releases=("2.1", "2.2")), "efficient"),
        (call((64, 8, 7, 16), dtype="float32"), where(releases=("2.1", "2.2")), "efficient"),
        (
            call((32, 12, 128, 64), dtype="float32", mask=(32, 1, 128, 128), mask_dtype="float32"),
            where(releases=("2.5.1", "2.6"), needs_grad=True),
            "efficient",
        ),
        (call((1024, 8, 7, 16), (1024, 8, 4096, 16)), where(releases=("2.1", "2.2")), "flash"),
        (call((16, 16, 559, 64), causal=True), where(sm=90, torch_version="2.6.0"), "flash"),
        (call((1, 1, 16384, 512)), where("rocm", torch_version="2.8.0"), "flash"),
    ],
)
def test_calls_of_real_runs(called: dict[str, Argument], environment: Environment, ran: str) -> None:
    verdict = judge(called, environment, ran)
    assert (verdict.agrees, verdict.problem, verdict.certainty) == (True, None, "certain")


def test_a_mask_float32_and_grouped_heads_stack_up_to_math() -> None:
    called = call((2, 32, 64, 64), (2, 8, 64, 64), dtype="float32", mask=(2, 1, 1, 64), gqa=True)
    verdict = judge(called, where(torch_version="2.8.0"), "math")
    assert verdict.certainty == "certain"
    assert rules(verdict, "flash") == ["FLASH-04", "FLASH-19"]
    assert rules(verdict, "efficient") == ["EFF-11"]
    flash, efficient = verdict.remedies
    assert [(step.rule, step.remedy, step.others) for step in flash.steps] == [
        ("FLASH-04", "R03", ("R04",)),
        ("FLASH-19", "R11", ()),
    ]
    assert flash.is_eligible is None  # packed sequences are no call of SDPA
    assert (efficient.steps[0].remedy, efficient.is_eligible) == ("R13", True)


def test_a_remedy_says_which_rule_would_refuse_next() -> None:
    called = call((2, 32, 64, 68), (2, 8, 64, 68))
    verdict = judge(called, where(torch_version="2.8.0", facts={"flash_enabled": False}), "math")
    flash, efficient = verdict.remedies
    assert [(step.rule, step.remedy) for step in flash.steps] == [("FLASH-01", "R20"), ("FLASH-23", "R14")]
    assert flash.is_eligible is True
    assert [step.remedy for step in efficient.steps] == ["R05", "R13"]
    assert efficient.is_eligible is True
    odd = judge(call((2, 8, 64, 68), (2, 8, 64, 72)), where(torch_version="2.8.0"), "math").remedies[1]
    assert (odd.backend, odd.is_eligible, odd.left) == ("efficient", True, ())
    none = judge(call((2, 8, 0, 64), (2, 8, 64, 64)), where(torch_version="2.8.0"), "math").remedies[0]
    assert (none.steps, none.is_eligible, none.left) == ((), False, ("FLASH-26",))


def test_decoding_with_is_causal_is_a_slow_path_and_probably_a_bug() -> None:
    verdict = judge(call((2, 8, 1, 64), (2, 8, 100, 64), causal=True), where(torch_version="2.8.0"), "efficient")
    assert rules(verdict, "flash") == ["FLASH-18"]
    assert [(lint.rule, lint.severity, lint.certainty) for lint in verdict.lints] == [("LINT-01", "warning", "certain")]
    assert [step.remedy for step in verdict.remedies[0].steps] == ["R08"]


# --- what is not known ---------------------------------------------------------------------------------------------------


def test_gradients_that_are_not_known_leave_flash_not_known() -> None:
    called = call((2, 8, 64, 200))
    verdict = judge(called, where(sm=86, torch_version="2.4.0", needs_grad=None))
    assert (verdict.predicted, verdict.possible) == (None, ("flash", "efficient"))
    assert rules(verdict, "flash", refuses=None) == ["FLASH-16"]
    assert "an input needs a gradient is not known" in backend(verdict, "flash").reasons[0].fields
    assert judge(called, where(sm=86, torch_version="2.4.0", needs_grad=True)).predicted == "efficient"
    assert judge(called, where(sm=80, torch_version="2.4.0", needs_grad=None)).predicted == "flash"


@pytest.mark.parametrize("missing", ["query", "dropout_p", "enable_gqa", "attn_mask"])
def test_a_field_that_was_not_recorded_is_not_passed_over(missing: str) -> None:
    called = call((2, 8, 64, 64), (2, 4, 64, 64), gqa=True)
    whole = judge(called, Environment("cpu", torch_version="2.13.0"))
    assert whole.predicted == "flash"
    del called[missing]
    verdict = judge(called, Environment("cpu", torch_version="2.13.0"))
    assert (verdict.predicted, verdict.certainty) == (None, "unknown")
    assert rules(verdict, "flash", refuses=None) != []


def test_no_shapes_at_all_are_not_known() -> None:
    verdict = judge({}, where(torch_version="2.8.0"), "flash")
    assert (verdict.predicted, verdict.problem) == (None, None)
    assert backend(verdict, "efficient").is_eligible is None


def test_strides_that_old_traces_lack_are_assumed_and_that_is_said() -> None:
    called = {name: each._replace(strides=None) for name, each in call().items()}
    verdict = judge(called, where(torch_version="2.1.0", facts=DENSE))
    assert (verdict.predicted, verdict.certainty) == ("flash", "likely")
    assert rules(verdict, "flash", refuses=False) == ["FLASH-27"]
    assert "(assumed)" in backend(verdict, "flash").reasons[0].fields
    known = judge(call(), where(torch_version="2.1.0", facts=DENSE))
    assert (known.predicted, known.certainty) == ("flash", "certain")


def test_a_device_without_a_capability_is_not_known() -> None:
    verdict = judge(call(), Environment("cuda", "", None, "2.8.0", needs_grad=False))
    assert (verdict.predicted, verdict.certainty) == (None, "unknown")
    assert "FLASH-12" in rules(verdict, "flash", refuses=None)


def test_a_version_that_is_not_known_leaves_every_release_that_fits() -> None:
    verdict = judge(call(), where(sm=90), "flash")
    assert set(verdict.possible) == {"efficient", "flash", "cudnn"}
    assert verdict.agrees is None
    assert (verdict.releases, verdict.certainty) == ("2.1 to 2.4, 2.5.1 to 2.8, 2.10", "likely")


@pytest.mark.parametrize(
    ("version", "releases", "sure"),
    [
        ("2.8.0", "2.8", "certain"),
        ("2.8.0a0+git1234", "2.8", "likely"),
        ("2.99.0", "2.14", "likely"),
    ],
)
def test_a_build_of_its_own_is_at_most_likely(version: str, releases: str, sure: str) -> None:
    verdict = judge(call(dtype="float32"), where(torch_version=version), "efficient")
    assert (verdict.releases, verdict.certainty) == (releases, sure)


def test_a_release_before_sdpa_is_a_problem() -> None:
    for place in (where(torch_version="1.13.1"), where(releases=())):
        verdict = judge(call(), place, "flash")
        assert (verdict.predicted, verdict.backends, verdict.certainty) == (None, (), "unknown")
        assert verdict.problem == "no release that the rules know fits the trace"


@pytest.mark.parametrize("device", ["xpu", "mps"])
def test_a_device_whose_rules_are_not_known_is_not_judged(device: str) -> None:
    verdict = judge(call(), Environment(device, torch_version="2.8.0"))
    assert (verdict.predicted, verdict.certainty) == (None, "unknown")


@given(
    st.sampled_from([("cpu", 0), ("cuda", 75), ("cuda", 80), ("cuda", 86), ("cuda", 90), ("cuda", 100), ("rocm", 94)]),
    st.sampled_from(known_releases()),
    st.sampled_from([(2, 8, 64, 64), (2, 8, 1, 200), (8, 64, 64), (1, 4, 4096, 68), (2, 1, 64, 256)]),
    st.sampled_from([(2, 8, 64, 64), (2, 2, 64, 200), (8, 64, 64), (1, 4, 64, 68)]),
    st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
            "mask": st.sampled_from([None, (64, 64), (2, 1, 1, 64), (8, 64, 64)]),
            "dropout": st.sampled_from([0.0, 0.1]),
            "causal": st.booleans(),
            "gqa": st.booleans(),
        }
    ),
    st.booleans(),
    st.sets(st.sampled_from(["query", "value", "attn_mask", "dropout_p", "is_causal", "enable_gqa", "grad", "sm"])),
)
def test_knowing_less_excludes_no_backend_that_knowing_more_allows(
    device: tuple[str, int],
    release: str,
    q: tuple[int, ...],
    k: tuple[int, ...],
    rest: dict[str, Any],
    needs_grad: bool,  # noqa: FBT001
    forgotten: set[str],
) -> None:
    called = call(q, k, **rest)
    place = Environment(device[0], "AMD Instinct MI300X", divmod(device[1], 10), release, None, needs_grad)
    whole = judge(called, place)
    less = {name: each for name, each in called.items() if name not in forgotten}
    place = replace(
        place,
        needs_grad=None if "grad" in forgotten else needs_grad,
        capability=None if "sm" in forgotten else place.capability,
    )
    verdict = judge(less, place)
    assert set(whole.possible) <= set(verdict.possible)
    if verdict.certainty == "certain":
        assert verdict.predicted == whole.predicted


# --- what contradicts ----------------------------------------------------------------------------------------------------


def test_a_faster_backend_that_nothing_refuses_was_excluded_by_what_is_not_recorded() -> None:
    verdict = judge(call(), where(torch_version="2.8.0"), "efficient")
    flash = backend(verdict, "flash")
    assert (verdict.agrees, verdict.certainty) == (False, "unknown")
    assert (flash.status, flash.is_eligible) == ("passed over", True)
    assert rules(verdict, "flash", refuses=False) == ["FLASH-01", "FLASH-02"]
    assert [step.remedy for step in verdict.remedies[0].steps] == ["R20", "R21"]


def test_a_backend_that_ran_though_it_is_refused_is_a_fault_of_the_rules() -> None:
    verdict = judge(call(dtype="float32"), where(torch_version="2.8.0"), "flash")
    assert (
        verdict.problem
        == "flash ran, though FLASH-19 refuses it: the rules are wrong here, or torch is a build of its own"
    )
    assert backend(verdict, "flash").status == "ran"


def test_a_backend_that_the_device_does_not_have_is_a_fault_of_the_rules() -> None:
    verdict = judge(call(), where("rocm", torch_version="2.8.0"), "cudnn")
    assert verdict.problem == "cudnn is not among the backends that the rules know for this device and release"


# --- rows of backends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "found"),
    [
        ("aten::_scaled_dot_product_flash_attention", "flash"),
        ("aten::_scaled_dot_product_flash_attention.quantized", "flash"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "flash"),
        ("aten::_scaled_dot_product_cudnn_attention", "cudnn"),
        ("aten::_scaled_dot_product_fused_attention_overrideable", "overrideable"),
        ("aten::_scaled_dot_product_attention_math_for_mps", "math_for_mps"),
        ("aten::scaled_dot_product_attention", None),
        ("aten::_scaled_dot_product_flash_attention_backward", None),
    ],
)
def test_an_op_means_a_backend(op: str, found: str | None) -> None:
    assert backend_of(op) == found


def test_a_row_without_a_wrapper_is_read_as_a_call() -> None:
    called = call((2, 8, 64, 64), (2, 2, 64, 64), causal=True)
    row = {name: called[name] for name in ("query", "key", "value", "dropout_p", "is_causal")}
    read = wrapper_arguments("aten::_scaled_dot_product_flash_attention", row)
    assert read["attn_mask"] == NONE
    assert read["enable_gqa"].value is True
    bias = {**row, "attn_bias": Argument((2, 8, 64, 64), "bfloat16", (32768, 4096, 64, 1), None)}
    assert wrapper_arguments("aten::_scaled_dot_product_efficient_attention", bias)["attn_mask"].shape == (2, 8, 64, 64)


def test_rows_tell_of_gradients() -> None:
    assert gradients_needed(has_sequence_number=False) is False
    assert gradients_needed(has_sequence_number=True) is None
    assert gradients_needed(has_sequence_number=None) is None
    assert gradients_needed(has_sequence_number=True, saves_log_sumexp=False) is False
    assert gradients_needed(has_sequence_number=None, saves_log_sumexp=True) is True
    assert gradients_needed(has_sequence_number=None, has_backward=True) is True


# --- words ---------------------------------------------------------------------------------------------------------------


def test_a_verdict_is_told_in_sentences() -> None:
    called = call((2, 8, 1, 128), (2, 2, 100, 128), causal=True, gqa=True)
    assert in_sentences(judge(called, where(torch_version="2.8.0"), "math")) == snapshot(
        [
            "math ran (certain), predicted math (likely); torch 2.8 tries flash, efficient, math, cudnn",
            "flash: refused: is_causal wants as many queries as keys; is_causal = yes; query length = 1; key length = 100 (FLASH-18, certain)",
            "efficient: refused: query, key and value must have as many heads, enable_gqa or not; heads of query, key, value = 8, 2, 2 (EFF-11, certain)",
            "for flash: for a mask that ends at the last key use causal_lower_right(queries, keys); for one query drop is_causal; but: more queries than keys give rows of NaN so; it must be the mask that is meant (R08 for FLASH-18)",
            "flash would then take the call",
            "for efficient: repeat the key-value heads to as many as the query's; but: a copy as large as the ratio of heads, but for a single head, which expands without one (R13 for EFF-11)",
            "efficient would then take the call",
            "warning: is_causal with fewer queries than keys: SDPA aligns the mask top-left, so the first query sees the first key alone; with a KV cache this is probably a bug (LINT-01, certain)",
            "note: math computes half precision in float32 from 2.5 on: about four times slower than before (MATH-PERF, certain)",
        ]
    )


def test_what_is_not_in_the_trace_is_told() -> None:
    assert in_sentences(judge(call(), where(sm=90, torch_version="2.12.0"), "flash")) == snapshot(
        [
            "flash ran (unknown), predicted cudnn (likely); torch 2.12 tries cudnn, flash, efficient, math, overrideable",
            "cudnn: nothing recorded refuses it, but perhaps: cuDNN is switched off, as it is by default in 2.3 and 2.4; cuDNN is switched on (enable_cudnn_sdp, sdpa_kernel) = yes (assumed) (CUDNN-02, likely)",
            "cudnn: nothing recorded refuses it, but perhaps: torch was built without cuDNN 9; torch was built with cuDNN 9 or newer = yes (assumed) (CUDNN-03, likely)",
            "cudnn: nothing recorded refuses it, but perhaps: deterministic algorithms are asked for, and it is not; deterministic algorithms are asked for, not only warned of = no (assumed) (CUDNN-18, likely)",
            "cudnn: nothing recorded refuses it, but perhaps: this cuDNN is too old for the call; cuDNN version = 92000 (assumed) (CUDNN-27, likely)",
            "cudnn: nothing recorded refuses it, but perhaps: the order may be another; cuDNN version = 92000 (assumed); TORCH_CUDNN_SDPA_DEPRIORITIZED=1 = no (assumed) (ORDER-2.10-CUDNN, likely)",
            "for cudnn: enable cuDNN: enable_cudnn_sdp(True), or sdpa_kernel([CUDNN_ATTENTION, ...], set_priority=True) from 2.6 on, in 2.3 and 2.4 TORCH_CUDNN_SDPA_ENABLED=1 too; but: wrong results are known in some versions (pytorch#139298, #193893, #196678); new shapes cost tens of ms of host time; not faster on compute capability 8.x (R18 for CUDNN-02)",
            "for cudnn: use a build that has the backend: Linux or WSL for flash, a newer cuDNN; on Windows cuDNN by set_priority, or the flash-attn package; but: it is another build (R21 for CUDNN-03, CUDNN-27)",
            "for cudnn: ask for deterministic algorithms in training only, or take flash, whose backward can be so; but: results may then differ from run to run (R24 for CUDNN-18)",
        ]
    )
