"""What padding wastes: on traces that an eye can add up, and on recordings whose pairs are counted here again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from inline_snapshot import snapshot

import tracekit
from tests.build import Event, annotation, ask, csv, frame, kernel, launch, notes, only, op, recorded_step, work
from tracekit.cli import main
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.table import Table

SDPA = "aten::_scaled_dot_product_flash_attention"
COUNTS = ("step", "useful_tokens", "computed_tokens", "useful_pairs", "computed_pairs", "implementation")


def sdpa(at: float, correlation: int, *, is_causal: bool, has_shapes: bool = True) -> list[Event]:
    """Make a flash call on two sequences of 4 tokens, its launch and a kernel of 10 µs."""
    values = ["", "", "", "0.", str(is_causal), "False", ""]
    args: dict[str, Any] = (
        {"Input_Dims": [[2, 1, 4, 8]] * 3 + [[]] * 4, "Concrete_Inputs": values} if has_shapes else {}
    )
    return [
        op(SDPA, at, 4, **args),
        launch(at + 2, correlation),
        kernel("flash_fwd_kernel", at + 5, 10, correlation),
    ]


def decoder(*, number: int = 0, at: float = 0, is_causal: bool = False, has_shapes: bool = True) -> list[Event]:
    """Make a step: 10 µs of flash attention, 40 in the MLP, 20 in the optimizer, 30 that nobody can place."""
    ids, first = 10 * number, 100 * number
    return [
        recorded_step(number, at, 300),
        frame("nn.Module: LlamaAttention_0", at + 10, 40, first + 1),
        *sdpa(at + 12, ids + 1, is_causal=is_causal, has_shapes=has_shapes),
        frame("nn.Module: LlamaMLP_0", at + 60, 60, first + 2),
        *work("gemm", at + 70, 40, ids + 2, op_name="aten::mm"),
        annotation("Optimizer.step#AdamW.step", at + 150, 30),
        *work("multi_tensor_apply_kernel", at + 160, 20, ids + 3, op_name="aten::_foreach_add_"),
        *work("mystery", at + 220, 30, ids + 4, op_name="my_extension::mystery"),
    ]


def facts(*numbers: int, lengths: tuple[int, ...] = (4, 2)) -> dict[str, Any]:
    """Say that these steps padded sequences to 4 tokens; of 8 tokens 6 are real, of the causal pairs 10 + 3."""
    known = {"lengths": [*lengths], "padded_length": 4, "query_length": 4, "mask_kind": "causal"}
    return {"steps": [{"number": number, **known} for number in numbers or (0,)]}


def roles(table: Table) -> dict[str, dict[str, Any]]:
    """Return the rows of an answer about one step by role."""
    return {row["role"]: row for row in table.frame.rows(named=True)}


def test_each_role_wastes_by_what_its_work_grows_with() -> None:
    table = ask("padding_waste", *decoder(), facts=facts())
    assert csv(table, "role", "work_ns", "basis", "waste_frac", "waste_ns") == snapshot("""\
role,work_ns,basis,waste_frac,waste_ns
all,100000,-,0.159375,15937.5
mlp,40000,tokens,0.25,10000.0
attention.core,10000,pairs,0.59375,5937.5
optimizer,20000,none,0.0,0.0
other,30000,-,-,-
""")
    assert csv(table, *COUNTS).splitlines()[:2] == snapshot(
        ["step,useful_tokens,computed_tokens,useful_pairs,computed_pairs,implementation", "0,6,8,13,32,flash"]
    )
    assert notes(table) == snapshot("""\
exact: 2 of 8 tokens are padding: 25.00 %.
exact: 19 of 32 attention pairs that flash computed are padding or masked: 59.38 %.
estimated: waste_ns takes time to be in proportion to tokens or pairs.
""")


def test_pairs_that_are_skipped_are_not_wasted_and_the_rest_is_estimated() -> None:
    table = ask("padding_waste", *decoder(is_causal=True), facts=facts())
    core = roles(table)["attention.core"]
    assert (core["useful_pairs"], core["computed_pairs"]) == (13, 20)
    assert core["waste_frac"] == pytest.approx(1 - 13 / 20)
    assert notes(table) == snapshot("""\
exact: 2 of 8 tokens are padding: 25.00 %.
estimated: 7 of 20 attention pairs that flash computed are padding: 35.00 %. It skips masked pairs
by the tile, so it computed somewhat more.
estimated: waste_ns takes time to be in proportion to tokens or pairs.
""")


def test_without_shapes_pairs_waste_nothing_that_is_known() -> None:
    table = ask("padding_waste", *decoder(has_shapes=False), facts=facts())
    assert csv(table, "role", "basis", "waste_frac", "waste_ns", "computed_pairs", "implementation") == snapshot("""\
role,basis,waste_frac,waste_ns,computed_pairs,implementation
all,-,0.1,10000.0,-,-
mlp,tokens,0.25,10000.0,-,-
optimizer,none,0.0,0.0,-,-
attention.core,pairs,-,-,-,-
other,-,-,-,-,-
""")
    assert notes(table) == snapshot("""\
exact: 2 of 8 tokens are padding: 25.00 %.
not_derivable: Attention pairs of 1 of the steps: the ops carry no shapes, their calls differ, or
the mask is of an unknown kind. There, waste_ns of all leaves attention out: a lower bound.
estimated: waste_ns takes time to be in proportion to tokens or pairs.
""")


def test_a_batch_without_padding_wastes_only_masked_pairs() -> None:
    found = roles(ask("padding_waste", *decoder(), facts=facts(lengths=(4, 4))))
    assert found["mlp"]["waste_ns"] == 0
    assert found["attention.core"]["waste_frac"] == pytest.approx(1 - 20 / 32)
    found = roles(ask("padding_waste", *decoder(is_causal=True), facts=facts(lengths=(4, 4))))
    assert [row["waste_ns"] for row in found.values() if row["basis"]] == [0, 0, 0]


def test_the_optimizer_wastes_nothing_and_the_unknown_is_null() -> None:
    found = roles(ask("padding_waste", *decoder(), facts=facts()))
    assert [found["optimizer"][name] for name in ("basis", "waste_frac", "waste_ns")] == ["none", 0, 0]
    unknown = [row for row in found.values() if row["basis"] is None and row["role"] != "all"]
    assert [row["work_ns"] for row in unknown] == [30_000]
    assert [(row["waste_frac"], row["waste_ns"]) for row in unknown] == [(None, None)]


def test_the_whole_is_the_sum_of_its_roles_in_each_step() -> None:
    steps = [*decoder(), *decoder(number=1, at=300, is_causal=True)]
    table = ask("padding_waste", *steps, facts=facts(0, 1))
    assert table.frame["step"].unique().to_list() == [0, 1]
    for rows in table.frame.partition_by("step"):
        whole, parts = rows[0], rows[1:]
        assert whole["role"].item() == "all"
        assert "all" not in parts["role"].to_list()
        assert whole["work_ns"].item() == parts["work_ns"].sum() == 100_000
        assert whole["waste_ns"].item() == pytest.approx(parts["waste_ns"].sum())
        assert whole["waste_frac"].item() == pytest.approx(whole["waste_ns"].item() / whole["work_ns"].item())


def test_steps_come_in_their_order_and_those_without_facts_are_left_out() -> None:
    steps = [*decoder(), *decoder(number=1, at=300), *decoder(number=2, at=600)]
    table = ask("padding_waste", *steps, facts=facts(2, 0, 9))
    assert table.frame["step"].unique(maintain_order=True).to_list() == [0, 2]


def test_a_selected_step_is_answered_alone() -> None:
    steps = [*decoder(), *decoder(number=1, at=300)]
    table = ask("padding_waste", *steps, facts=facts(0, 1), selection=only(steps=[1]))
    assert table.frame["step"].unique().to_list() == [1]
    assert "2 of 8 tokens" in notes(table)


@pytest.mark.parametrize("beside", [None, {"steps": [{"number": 0, "lengths": None}]}, facts(5)])
def test_without_lengths_it_is_not_derivable_and_says_how_to_record(beside: dict[str, Any] | None) -> None:
    with pytest.raises(TracekitError) as caught:
        ask("padding_waste", *decoder(), facts=beside)
    problem, _, remedy = str(caught.value).partition(": it needs ")
    assert problem == "padding_waste is not derivable from this run: it holds no batch.tokens"
    assert "tracekit capture" in remedy


LENGTHS = (37, 64, 12, 50)
REAL = {
    "math, flag": ("--impl math --mask causal", "math", "exact"),
    "flash, flag": ("--impl flash --mask causal", "flash", "estimated"),
    "flash, dense": ("--impl flash --mask dense", "flash", "exact"),
    "naive, flag": ("--impl naive --mask causal", "naive", "exact"),
    "naive, dense": ("--impl naive --mask dense", "naive", "exact"),
}
"""Options of a recording, the implementation that runs, and how well its pairs are known."""


def seen(queries: int, keys: int) -> int:
    """Count the pairs that a causal mask lets be seen, cell by cell."""
    return sum(key <= query for query in range(queries) for key in range(keys))


@pytest.mark.parametrize("case", REAL)
def test_recorded_attention_has_the_pairs_that_its_implementation_computes(case: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    options, implementation, status = REAL[case]
    output = tmp_path / "run.tkb"
    small = "--layers 2 --heads 4 --head-dim 8 --vocab 32 --steps 1 --warmup 0 --device cpu --lengths "
    words = [*small.split(), ",".join(map(str, LENGTHS)), *options.split()]
    made = CliRunner().invoke(main, ["capture", "attention", "-o", str(output), *words])
    assert made.exit_code == 0, made.output
    padded = max(LENGTHS)
    useful = sum(seen(length, length) for length in LENGTHS)
    computed = len(LENGTHS) * (seen(padded, padded) if status == "estimated" else padded * padded)
    assert (useful, computed) == (4136, 8320 if status == "estimated" else 16384)
    with tracekit.open(output) as opened:
        table = opened.query("padding_waste")
        assert opened.sql("select distinct pairs_status from batch").frame.item() == status
    assert table.frame.select(COUNTS).unique().rows() == [(0, 163, 256, useful, computed, implementation)]
    by_basis = table.frame.filter(table.frame["basis"].is_not_null()).select("basis", "waste_frac").unique()
    assert dict(by_basis.iter_rows()) == pytest.approx({"tokens": 1 - 163 / 256, "pairs": 1 - useful / computed})
    assert {"attention.qkv_proj", "mlp", "lm_head"} <= {*table.frame["role"]}
    said = " ".join(notes(table).split())
    assert "exact: 93 of 256 tokens are padding: 36.33 %." in said
    assert f"{status}: {computed - useful:,} of {computed:,} attention pairs that {implementation} computed" in said
