"""Every piece of work has a role, how sure it is, and a reason that names what decided."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attention.roles.tree import (
    ADD,
    ALL_REDUCE,
    COPY,
    FLASH,
    FLASH_BACKWARD,
    GEMM,
    SOFTMAX,
    backward,
    events,
    function,
    kernel,
    kernels,
    linear,
    mark,
    memset,
    module,
    op,
    orphan,
    roles,
    sdpa,
)
from tests.build import tables
from tracekit.attention.knowledge import load
from tracekit.attention.roles.places import NOWHERE, Place
from tracekit.attention.roles.roles import Role, decide

if TYPE_CHECKING:
    from tests.attention.roles.tree import Part

# The words for what work does in a model; anything else in an answer is a mistake.
ROLES = {
    *(f"attention.{part}" for part in (
        "qkv_proj", "qk_norm", "rope", "kv_cache", "layout", "mask", "scores", "softmax", "values", "core", "out_proj",
        "other",
    )),
    "mlp", "moe", "norm", "residual", "embedding", "lm_head", "loss", "optimizer", "comm", "quant", "conv", "copy",
    "sampling", "other", "unlinked",
}  # fmt: skip
CORE = Place("attention", None, ("op", 3), "op aten::scaled_dot_product_attention")
IN_ATTENTION = Place("attention", None, ("frame", 3), "module LlamaAttention")


def _in(name: str) -> Place:
    return Place(name, None, None, f"module {name}")


@pytest.mark.parametrize(
    ("place", "action", "op_name", "phase", "expected"),
    [
        # Communication is communication wherever it happens.
        (IN_ATTENTION, "comm", "nccl:all_reduce", "forward", Role("comm", "certain", "op nccl:all_reduce")),
        (_in("optimizer"), "comm", "nccl:all_reduce", "optimizer", Role("comm", "certain", "op nccl:all_reduce")),
        # In attention: the part, then the action, then the rest.
        (CORE, "attention", "aten::_flash", "forward", Role("attention.core", "certain", CORE.reason)),
        (IN_ATTENTION, "attention", "f", "forward", Role("attention.core", "likely", "module LlamaAttention")),
        (IN_ATTENTION, "softmax", "aten::softmax", "forward", Role("attention.softmax", "likely", IN_ATTENTION.reason)),
        (IN_ATTENTION, "copy", "aten::copy_", "forward", Role("attention.layout", "likely", IN_ATTENTION.reason)),
        (IN_ATTENTION, "cat", "aten::cat", "forward", Role("attention.layout", "likely", IN_ATTENTION.reason)),
        (IN_ATTENTION, "mask", "aten::masked_fill", "forward", Role("attention.mask", "likely", IN_ATTENTION.reason)),
        (IN_ATTENTION, "elementwise", "aten::mul", "forward", Role("attention.other", "likely", IN_ATTENTION.reason)),
        (IN_ATTENTION, None, None, "forward", Role("attention.other", "likely", IN_ATTENTION.reason)),
        (
            IN_ATTENTION._replace(part="rope", reason="function rope"),
            "elementwise",
            "aten::mul",
            "forward",
            Role("attention.rope", "likely", "function rope"),
        ),
        (
            IN_ATTENTION._replace(part="norm", reason="module RMSNorm"),
            "copy",
            "aten::to",
            "forward",
            Role("attention.qk_norm", "likely", "module RMSNorm"),
        ),
        # Elsewhere the place gives its role to all in it, more surely where an op says so.
        (_in("mlp"), "gemm", "aten::mm", "forward", Role("mlp", "likely", "module mlp")),
        (_in("norm"), "reduce", "aten::mean", "forward", Role("norm", "likely", "module norm")),
        (
            Place("embedding", None, None, "op aten::embedding"),
            "embedding",
            "aten::embedding",
            "forward",
            Role("embedding", "certain", "op aten::embedding"),
        ),
        (_in("rope"), "elementwise", "aten::mul", "forward", Role("attention.rope", "likely", "module rope")),
        # An optimizer's step owns what no place claims.
        (NOWHERE, "elementwise", "aten::add_", "optimizer", Role("optimizer", "certain", "inside an optimizer step")),
        (_in("mlp"), "gemm", "aten::mm", "optimizer", Role("mlp", "likely", "module mlp")),
        # In a block, only an add is its own work.
        (
            _in("block"),
            "elementwise",
            "aten::add",
            "forward",
            Role("residual", "inferred", "an add right inside module block"),
        ),
        (
            _in("block"),
            "elementwise",
            "aten::add_",
            "forward",
            Role("residual", "inferred", "an add right inside module block"),
        ),
        (_in("block"), "elementwise", "aten::mul", "forward", Role("other", "inferred", "op aten::mul")),
        # Without a place the action speaks, and some actions say nothing.
        (NOWHERE, "norm", "aten::native_layer_norm", "forward", Role("norm", "likely", "op aten::native_layer_norm")),
        (NOWHERE, "copy", "aten::copy_", "forward", Role("copy", "likely", "op aten::copy_")),
        (NOWHERE, "gemm", "aten::mm", "forward", Role("other", "inferred", "op aten::mm")),
        (NOWHERE, None, None, "other", Role("other", "inferred", "nothing says more")),
    ],
)
def test_place_action_and_phase_decide(
    place: Place, action: str | None, op_name: str | None, phase: str, expected: Role
) -> None:
    assert decide(place, action, op_name, phase) == expected


def test_a_fused_kernel_s_name_proves_nothing() -> None:
    place = Place("norm", None, None, "op triton_per_fused_add_native_layer_norm_1")
    assert decide(place, "norm", "triton_per_fused_add_native_layer_norm_1", "forward").confidence == "likely"


# -- Whole traces ------------------------------------------------------------------------------------------------


def test_projections_of_an_attention_are_told_by_their_order_around_the_core() -> None:
    attention = module("LlamaAttention_0", *[module(f"Linear_{n}", linear()) for n in range(3)], sdpa(), linear())
    assert roles(attention) == [
        ("attention.qkv_proj", "likely"),
        ("attention.qkv_proj", "likely"),
        ("attention.qkv_proj", "likely"),
        ("attention.core", "certain"),
        ("attention.out_proj", "likely"),
    ]
    assert kernels(attention)["role_reason"].to_list()[0] == "a linear before the core of module LlamaAttention"
    assert kernels(attention)["role_reason"].to_list()[4] == "a linear after the core of module LlamaAttention"


def test_each_call_of_an_attention_has_its_own_order() -> None:
    once = module("LlamaAttention_0", linear(), sdpa(), linear())
    assert [role for role, _ in roles(once, once)] == ["attention.qkv_proj", "attention.core", "attention.out_proj"] * 2


def test_without_modules_a_core_is_known_and_the_projections_are_inferred() -> None:
    assert roles(linear(), sdpa(), linear(), linear()) == [
        ("attention.qkv_proj", "inferred"),
        ("attention.core", "certain"),
        ("attention.out_proj", "inferred"),
        ("other", "inferred"),
    ]


def test_a_naive_attention_is_scores_softmax_and_values() -> None:
    attention = module(
        "LlamaAttention_0",
        linear(),
        op("aten::matmul", op("aten::bmm", kernel(GEMM))),
        op("aten::div", kernel(ADD)),
        op("aten::softmax", op("aten::_softmax", kernel(SOFTMAX))),
        op("aten::matmul", op("aten::bmm", kernel(GEMM))),
        op("aten::contiguous", op("aten::clone", op("aten::copy_", kernel(COPY)))),
        linear(),
    )
    assert [role for role, _ in roles(attention)] == [
        "attention.qkv_proj",
        "attention.scores",
        "attention.other",
        "attention.softmax",
        "attention.values",
        "attention.layout",
        "attention.out_proj",
    ]


def test_two_chains_in_one_attention_are_both_read() -> None:
    product, softmax = op("aten::bmm", kernel(GEMM)), op("aten::softmax", op("aten::_softmax", kernel(SOFTMAX)))
    found = roles(module("LlamaAttention_0", *[product, softmax, product] * 2))
    assert [role for role, _ in found] == ["attention.scores", "attention.softmax", "attention.values"] * 2


def test_sdpa_s_math_backend_is_scores_softmax_and_values_without_any_module() -> None:
    math = op(
        "aten::scaled_dot_product_attention",
        op(
            "aten::_scaled_dot_product_attention_math",
            op("aten::matmul", op("aten::bmm", kernel(GEMM))),
            op("aten::_safe_softmax", op("aten::softmax", op("aten::_softmax", kernel(SOFTMAX)))),
            op("aten::matmul", op("aten::bmm", kernel(GEMM))),
        ),
    )
    assert [role for role, _ in roles(math)] == ["attention.scores", "attention.softmax", "attention.values"]


def test_rope_norm_mask_cache_and_repeated_heads_inside_an_attention_have_their_own_roles() -> None:
    attention = module(
        "LlamaAttention_0",
        linear(),
        module("LlamaRMSNorm_0", op("aten::mul", kernel(ADD))),
        function(
            "modeling_llama.py(132): apply_rotary_pos_emb", op("aten::mul", kernel(ADD)), op("aten::cat", kernel(COPY))
        ),
        function("cache_utils.py(445): update", op("aten::cat", kernel(COPY))),
        function("modeling_llama.py(158): repeat_kv", op("aten::clone", op("aten::copy_", kernel(COPY)))),
        function("modeling_llama.py(900): _update_causal_mask", op("aten::full", kernel(ADD))),
        sdpa(),
    )
    assert [role for role, _ in roles(attention)] == [
        "attention.qkv_proj",
        "attention.qk_norm",
        "attention.rope",
        "attention.rope",
        "attention.kv_cache",
        "attention.layout",
        "attention.mask",
        "attention.core",
    ]


def test_rope_outside_an_attention_still_belongs_to_attention() -> None:
    assert roles(module("LlamaRotaryEmbedding_0", op("aten::cos", kernel(ADD)))) == [("attention.rope", "likely")]


def test_a_norm_after_the_core_is_none_of_queries_and_keys() -> None:
    norm = module("LlamaRMSNorm_0", op("aten::mul", kernel(ADD)))
    assert [role for role, _ in roles(module("LlamaAttention_0", norm, sdpa(), norm))] == [
        "attention.qk_norm", "attention.core", "attention.other"
    ]  # fmt: skip


def test_the_layers_of_a_language_model_have_their_roles() -> None:
    layer = module(
        "LlamaDecoderLayer_0",
        module("LlamaRMSNorm_0", op("aten::mul", kernel(ADD))),
        module("LlamaAttention_0", linear(), sdpa(), linear()),
        op("aten::add", kernel(ADD)),
        module("LlamaMLP_0", module("Linear_5", linear()), module("SiLU_0", op("aten::silu", kernel(ADD)))),
        op("aten::add", kernel(ADD)),
        op("aten::mul", kernel(ADD)),
    )
    model = module(
        "LlamaForCausalLM_0",
        module("LlamaModel_0", module("Embedding_0", op("aten::embedding", kernel(ADD))), layer),
        module("Linear_9", linear()),
    )
    assert [role for role, _ in roles(model)] == [
        "embedding",
        "norm",
        "attention.qkv_proj",
        "attention.core",
        "attention.out_proj",
        "residual",
        "mlp",
        "mlp",
        "residual",
        "other",
        "lm_head",
    ]


def test_loss_is_what_the_loss_function_does() -> None:
    loss = function("torch/nn/functional.py(3425): cross_entropy", op("aten::mean", kernel(ADD)))
    assert [role for role, _ in roles(loss)] == ["loss"]


def test_backward_has_the_role_of_its_forward_op_and_is_a_little_less_sure() -> None:
    forward = module("LlamaAttention_0", linear(sequence=1), sdpa(sequence=2), linear(sequence=3))
    flash = op("aten::_scaled_dot_product_flash_attention_backward", kernel(FLASH_BACKWARD))
    found = kernels(
        forward,
        backward("AddmmBackward0", 3, op("aten::mm", kernel(GEMM)), op("aten::sum", kernel(ADD))),
        backward("ScaledDotProductFlashAttentionBackward0", 2, flash),
        backward("AddmmBackward0", 1, op("aten::mm", kernel(GEMM))),
    )
    assert found["role"].to_list()[3:] == [
        "attention.out_proj", "attention.out_proj", "attention.core", "attention.qkv_proj"
    ]  # fmt: skip
    assert found["phase"].to_list() == ["forward"] * 3 + ["backward"] * 4
    assert found["role_reason"].to_list()[3] == "backward of: a linear after the core of module LlamaAttention"
    assert set(found["role_confidence"].to_list()[3:]) <= {"likely", "certain"}


def test_backward_of_what_was_certain_is_likely() -> None:
    forward = op("aten::embedding", kernel(ADD), sequence=7)
    found = roles(forward, backward("EmbeddingBackward0", 7, op("aten::embedding_dense_backward", kernel(ADD))))
    assert found == [("embedding", "certain"), ("embedding", "likely")]


def test_a_sequence_number_that_no_forward_op_bears_says_nothing() -> None:
    assert roles(backward("AddmmBackward0", 5, op("aten::mm", kernel(GEMM)))) == [("other", "inferred")]


def test_an_optimizer_s_step_is_the_optimizer_s_but_for_communication() -> None:
    step = mark(
        "Optimizer.step#AdamW.step",
        op("aten::_foreach_add_", kernel(ADD)),
        op("aten::mul_", kernel(ADD)),
        op("nccl:all_reduce", kernel(ALL_REDUCE)),
    )
    assert roles(step) == [("optimizer", "certain"), ("optimizer", "certain"), ("comm", "certain")]


def test_communication_is_communication_inside_an_attention_too() -> None:
    attention = module("LlamaAttention_0", linear(), sdpa(), linear(), op("c10d::allreduce_", kernel(ALL_REDUCE)))
    assert roles(attention)[-1] == ("comm", "certain")
    assert roles(module("LlamaMLP_0", op("aten::mm", kernel(ALL_REDUCE)))) == [("comm", "certain")]


def test_a_set_inside_a_matrix_product_is_part_of_the_product() -> None:
    product = op("aten::addmm", memset(), kernel(GEMM))
    assert [role for role, _ in roles(module("LlamaAttention_0", product, sdpa()))][:2] == ["attention.qkv_proj"] * 2
    assert [role for role, _ in roles(module("LlamaMLP_0", product))] == ["mlp", "mlp"]


@pytest.mark.parametrize(
    ("name", "role"),
    [
        (FLASH, "attention.core"),
        (ALL_REDUCE, "comm"),
        (GEMM, "unlinked"),
        (COPY, "unlinked"),
        ("a_kernel_nobody_knows", "unlinked"),
    ],
)
def test_work_without_an_op_has_the_role_of_its_family_and_is_never_certain(name: str, role: str) -> None:
    found = kernels(module("LlamaAttention_0", sdpa(), orphan(name)))
    (row,) = found.filter(found["op_id"].is_null()).iter_rows(named=True)
    assert row["role"] == role
    assert row["role_confidence"] == ("inferred" if role == "unlinked" else "likely")
    assert "no op in the trace" in row["role_reason"]
    assert row["phase"] == "other"


def test_a_kernel_of_attention_s_own_family_is_the_core_whatever_op_is_around_it() -> None:
    assert roles(op("my::op", kernel(FLASH))) == [("attention.core", "certain")]
    assert roles(module("LlamaMLP_0", op("my::op", kernel(FLASH)))) == [("attention.core", "certain")]


# -- Laws --------------------------------------------------------------------------------------------------------


def test_the_knowledge_names_roles_of_the_list_alone() -> None:
    rules = load("roles/roles")
    named = {role for table in ("attention", "attention_part", "place", "action") for role in rules[table].values()}
    assert named <= ROLES
    assert all(role.startswith("attention.") for role in rules["attention"].values())
    assert all(role.startswith("attention.") for role in rules["attention_part"].values())


def _actions() -> list[str | None]:
    rows: list[dict[str, Any]] = [*load("families")["family"], *load("ops")["op"]]
    return [None, *sorted({row["action"] for row in rows} - {"none"})]


def _place_names() -> list[str | None]:
    rows: list[dict[str, Any]] = [*load("modules")["module"], *load("ops")["op"], *load("functions")["function"]]
    return [None, *sorted({row["place"] for row in rows if "place" in row} - {"layout"})]


@pytest.mark.parametrize("phase", ["forward", "backward", "recompute", "optimizer", "other"])
def test_whatever_decides_the_role_is_one_of_the_list(phase: str) -> None:
    parts = [None, *load("roles/roles")["attention_part"]]
    for name, action, part in itertools.product(_place_names(), _actions(), parts):
        place = Place(name, part if name == "attention" else None, None, f"module {name}")
        role = decide(place, action, "aten::add", phase)
        assert role.name in ROLES
        assert role.confidence in {"certain", "likely", "inferred"}
        assert role.reason
        if name == "attention":
            assert role.name.startswith("attention.") or role.name == "comm"


LEAVES = {
    "linear": linear(),
    "sdpa": sdpa(),
    "bmm": op("aten::bmm", kernel(GEMM)),
    "softmax": op("aten::softmax", op("aten::_softmax", kernel(SOFTMAX))),
    "add": op("aten::add", kernel(ADD)),
    "copy": op("aten::copy_", kernel(COPY)),
    "comm": op("nccl:all_reduce", kernel(ALL_REDUCE)),
    "unknown": op("my::op", kernel("my_kernel")),
    "orphan": orphan(FLASH),
}
INSIDE_ATTENTION = ["LlamaDecoderLayer", "LlamaAttention", "LlamaRMSNorm", "LlamaRotaryEmbedding", "Linear", "Dropout"]


def _trees(*classes: str) -> st.SearchStrategy[Part]:
    """Make models of these classes and the leaves, at any depth."""
    leaves = st.sampled_from(sorted(LEAVES)).map(LEAVES.__getitem__)

    def holders(parts: st.SearchStrategy[Part]) -> st.SearchStrategy[Part]:
        names = st.sampled_from(classes).map(lambda name: f"{name}_0")
        return st.builds(lambda name, inside: module(name, *inside), names, st.lists(parts, max_size=4))

    return st.recursive(leaves, holders, max_leaves=12)


@settings(max_examples=40, deadline=None)
@given(st.lists(_trees("LlamaForCausalLM", "LlamaMLP", *INSIDE_ATTENTION), max_size=4))
def test_every_kernel_and_op_of_any_model_has_a_role_a_confidence_and_a_reason(trees: list[Part]) -> None:
    made = tables(events(LEAVES["linear"], *trees))
    for table in ("kernel", "op"):
        for role, sure, reason in made[table].select("role", "role_confidence", "role_reason").iter_rows():
            assert role in ROLES
            assert sure in {"certain", "likely", "inferred"}
            assert reason


@settings(max_examples=40, deadline=None)
@given(st.lists(_trees(*INSIDE_ATTENTION), max_size=6))
def test_all_inside_an_attention_is_attention_s_but_for_communication(trees: list[Part]) -> None:
    found = kernels(module("LlamaAttention_0", sdpa(), *trees))
    linked = found.filter(found["op_id"].is_not_null())
    outside = {role for role in linked["role"] if not role.startswith("attention.")}
    assert outside <= {"comm"}
