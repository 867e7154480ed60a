"""Why SDPA's calls ran on their backends, as the question says it of hand-made and of real runs."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

import tracekit
from tests.build import ask, kernel, launch, notes, op, run, trace_file
from tracekit import catalog
from tracekit.analyses.headers import headers_of
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.build import Event
    from tracekit.table import Table

A100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "computeMinor": 0}]}
BF16 = "c10::BFloat16"


def call(
    start: float, number: int, child: str, *, query: list[int], value: list[int] | None = None, dtype: str = BF16
) -> list[Event]:
    """Make a call of SDPA with the row of the backend that ran, and its kernel of 10 µs."""
    shapes = [query, query, value or query, [], [], [], [], []]
    args: dict[str, Any] = {
        "Input_Dims": shapes,
        "Input_type": [dtype, dtype, dtype, "", "Scalar", "Scalar", "", "Scalar"],
        "Concrete_Inputs": ["", "", "", "", "0.", "False", "", "False"],
    }
    return [
        op("aten::scaled_dot_product_attention", start, 20, **args),
        op(child, start + 1, 15),
        launch(start + 2, number),
        kernel("k", 1000 + start, 10, number),
    ]


FLASH = "aten::_scaled_dot_product_flash_attention"
MATH = "aten::_scaled_dot_product_attention_math"
GOOD, LONG_VALUES = [2, 4, 128, 64], [2, 4, 128, 128]


def rows(*events: Event | list[Event], **params: Any) -> list[dict[str, Any]]:
    with run(*events, **A100) as opened:
        return opened.query("backend_verdict", **params).frame.rows(named=True)


def test_calls_alike_are_one_kind_and_the_backend_that_ran_is_predicted() -> None:
    (ran, *_) = rows(call(0, 1, FLASH, query=GOOD), call(50, 2, FLASH, query=GOOD))
    assert (ran["kind"], ran["calls"], ran["device_ns"], ran["query"]) == (0, 2, 20_000, "2×4×128×64")
    assert (ran["dtype"], ran["ran"], ran["backend"], ran["state"]) == ("bfloat16", "flash", "flash", "ran")
    assert "the rules predict" in ran["why"]


def test_a_fall_back_to_math_names_rule_fields_and_remedy() -> None:
    found = rows(call(0, 1, MATH, query=GOOD, value=LONG_VALUES))
    flash = next(row for row in found if row["backend"] == "flash")
    assert (flash["state"], flash["certainty"]) == ("refused", "certain")
    assert "FLASH-" in flash["why"]
    assert "64, 64, 128" in flash["why"]
    assert "head_dim" in flash["remedy"]


def test_kinds_with_most_time_come_first_and_top_cuts_them() -> None:
    events = [
        *call(0, 1, FLASH, query=GOOD),
        *call(50, 2, MATH, query=[2, 4, 128, 72]),
        *call(90, 3, MATH, query=[2, 4, 128, 72]),
    ]
    assert rows(*events)[0]["query"] == "2×4×128×72"
    with run(*events, **A100) as opened:
        table = opened.query("backend_verdict", top=1)
    assert set(table.frame["kind"]) == {0}
    assert "2 kinds of calls in all; -p top=0 judges every one." in notes(table)


def test_inputs_that_were_not_recorded_are_said_to_be_missing() -> None:
    bare = [op("aten::scaled_dot_product_attention", 0, 20), op(FLASH, 1, 15), launch(2, 1), kernel("k", 100, 10, 1)]
    found = rows(bare, call(50, 2, FLASH, query=GOOD))
    assert [row["why"] for row in found if row["backend"] is None and row["certainty"] == "unknown"] == [
        "its inputs were not recorded, or in no order that is known"
    ]
    with pytest.raises(TracekitError, match="backend_verdict is not derivable from this run"):
        ask("backend_verdict", op("aten::mm", 0, 1))


def test_its_header_names_the_columns_that_it_gives() -> None:
    asked = catalog.question("backend_verdict")
    found = rows(call(0, 1, FLASH, query=GOOD))
    assert list(asked.columns) == list(found[0])
    assert set(headers_of("backend_verdict")) == {"backend_verdict"}


@pytest.mark.parametrize(
    ("name", "kinds", "calls"), [("h100-qwen1.5-0.5b", 1, 24), ("a100-sam-sdpa", 5, 144), ("h100-bert-small", 1, 4)]
)
def test_every_call_of_a_real_trace_is_judged_and_what_ran_is_possible(
    name: str, kinds: int, calls: int, traces: Path
) -> None:
    with trace_file(traces / f"{name}.json.gz") as opened:
        frame = opened.query("backend_verdict", top=0).frame
    ran = frame.filter(frame["state"] == "ran")
    assert (ran.height, ran["calls"].sum()) == (kinds, calls)
    assert frame.filter(frame["state"] == "problem").is_empty()
    assert all(row["ran"] in row["why"].split(";")[0] for row in ran.rows(named=True))


def test_kernels_without_an_op_tell_by_name_what_ran_and_no_more() -> None:
    name = "void pytorch_flash::flash_{}_kernel<pytorch_flash::Flash_{}_kernel_traits<64, 128, 128, 4, false>>()"
    lone = [kernel(name.format("fwd", "fwd"), 2000 + 20 * at, 10, 90 + at) for at in range(3)]
    backward = kernel(name.format("bwd_dq_dk_dv_loop_seqk", "bwd"), 2100, 10, 99)
    *judged, row = rows(call(0, 1, FLASH, query=GOOD), *lone, backward)
    assert judged
    assert all(each["kind"] == 0 for each in judged)
    assert (row["kind"], row["query"], row["calls"], row["ran"], row["device_ns"]) == (
        None,
        None,
        None,
        "flash",
        30_000,
    )
    assert (row["backend"], row["state"]) == (None, "note")
    assert row["why"] == (
        "3 kernels of aten_flash_attention_2 (head dim up to 64) have no op: a fused attention, not math; "
        "rules need the op's inputs"
    )


def test_kernels_of_a_real_trace_whose_op_was_not_recorded_are_a_row(traces: Path) -> None:
    with trace_file(traces / "h100-qwen1.5-0.5b.json.gz") as opened:
        last = opened.query("backend_verdict").frame.row(-1, named=True)
    assert (last["ran"], last["state"], last["why"].split(" of ")[0]) == ("flash", "note", "10 kernels")


@pytest.fixture(scope="module", params=["on", "off", "block"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Table]:
    """Record SDPA with flash on, switched off for all, and left out by a block around the calls; ask why it ran."""
    torch = pytest.importorskip("torch")
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from tracekit.capture import Recorder

    query = torch.randn(2, 4, 64, 32)

    def step(_: int) -> None:
        with sdpa_kernel(SDPBackend.MATH) if request.param == "block" else nullcontext():
            torch.nn.functional.scaled_dot_product_attention(query, query, query)

    path = tmp_path_factory.mktemp("recorded") / "run.tkb"
    torch.backends.cuda.enable_flash_sdp(request.param != "off")
    try:
        Recorder(path, device="cpu").run(step, steps=1, warmup=1)
    finally:
        torch.backends.cuda.enable_flash_sdp(True)
    with tracekit.open(path) as opened:
        return request.param, opened.query("backend_verdict")


def test_switches_that_capture_recorded_decide(recorded: tuple[str, Table]) -> None:
    case, table = recorded
    found = {row["backend"]: (row["state"], row["certainty"], row["ran"]) for row in table.frame.iter_rows(named=True)}
    assert (
        found
        == {
            "on": {"flash": ("ran", "certain", "flash")},
            "off": {"flash": ("refused", "certain", "math"), "math": ("ran", "certain", "math")},
            "block": {"flash": ("passed over", "likely", "math"), "math": ("ran", "likely", "math")},
        }[case]
    )
    said = [note.text for note in table.notes]
    assert any("capture` recorded before" in text for text in said)
    assert any("sdpa_kernel" in text for text in said) == (case == "block")
    if case == "off":
        (why,) = table.frame.filter(backend="flash")["why"]
        assert "switched off" in why


def test_a_trace_alone_tells_no_switches() -> None:
    with run(call(0, 1, FLASH, query=GOOD), **A100) as opened:
        assert "holds no switches" in notes(opened.query("backend_verdict"))


ALL_ON = {"sdpa": dict.fromkeys(("flash", "efficient", "cudnn", "math", "overrideable"), True)}


@pytest.mark.parametrize(
    ("child", "dtype", "may_be_a_block"),
    [(FLASH, BF16, False), (MATH, BF16, True), (FLASH, "float", False)],
    ids=["as predicted", "a slower one", "one that a rule refuses whatever the switches"],
)
def test_a_block_is_blamed_only_where_it_explains_what_ran(child: str, dtype: str, *, may_be_a_block: bool) -> None:
    facts = {"facts_version": 1, "torch_version": "2.8.0", "settings": ALL_ON}
    with run(*call(0, 1, child, query=GOOD, dtype=dtype), facts=facts, **A100) as opened:
        said = notes(opened.query("backend_verdict"))
    assert ("sdpa_kernel" in said) is may_be_a_block
    assert "capture` recorded" in said


def test_a_backend_that_was_switched_off_is_refused() -> None:
    switches = {"sdpa": ALL_ON["sdpa"] | {"flash": False, "efficient": False, "cudnn": False}}
    facts = {"facts_version": 1, "torch_version": "2.8.0", "settings": switches}
    with run(*call(0, 1, MATH, query=GOOD), facts=facts, **A100) as opened:
        found = opened.query("backend_verdict").frame
    states = dict(found.drop_nulls("backend").select("backend", "state").iter_rows())
    assert (states["flash"], states["efficient"], states["math"]) == ("refused", "refused", "ran")
