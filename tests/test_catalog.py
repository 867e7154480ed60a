"""Headers are read as they are written, and what a question can't have is said with the way out."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from tests.build import kernel, only, op, run, work
from tracekit import catalog
from tracekit.catalog import NoteRule, Param
from tracekit.errors import TracekitError
from tracekit.store import Store

Value = int | float | str | bool

HEADER = """\
-- /// query
-- summary = "How many?"
-- requires = ["kernel.dur_ns", "op.name"]
--
-- [params]
-- top = { default = 20, doc = '''Rows to
-- return.''' }
--
-- [columns]
-- pieces = '''How many there
-- are.'''
--
-- [[notes]]
-- status = "info"
-- text = '''{0} in all,
-- counted.'''
-- sql = '''
-- select count(*)
-- from kernel
-- '''
-- ///
select count(*) as pieces
from kernel
limit $top
"""


def test_a_header_is_read_as_it_is_written() -> None:
    asked = catalog.parse("pieces", HEADER)
    assert (asked.name, asked.summary) == ("pieces", "How many?")
    assert asked.requires == ("kernel.dur_ns", "op.name")
    assert asked.sql == "select count(*) as pieces\nfrom kernel\nlimit $top"


def test_a_text_broken_over_lines_is_one_line() -> None:
    asked = catalog.parse("pieces", HEADER)
    assert asked.params == {"top": Param("top", 20, "Rows to return.")}
    assert asked.columns == {"pieces": "How many there are."}
    assert asked.notes == (NoteRule("info", "select count(*)\nfrom kernel\n", "{0} in all, counted."),)


def test_params_requires_and_notes_may_be_left_out() -> None:
    asked = catalog.parse(
        "one", '-- /// query\n-- summary = "One?"\n-- [columns]\n-- one = "One."\n-- ///\nselect 1 as one'
    )
    assert (asked.requires, asked.params, asked.notes) == ((), {}, ())


@pytest.mark.parametrize(
    "text",
    [
        "select 1",
        "-- /// query\nselect 1",
        '-- summary = "One?"\n-- ///\nselect 1',
        '-- /// query\n-- summary = "One?\n-- ///\nselect 1',
        "-- /// query\n-- summary One?\n-- ///\nselect 1",
    ],
    ids=["no header", "not closed", "not opened", "open text", "no TOML"],
)
def test_a_text_without_a_right_header_is_our_fault_and_raises(text: str) -> None:
    with pytest.raises(ValueError, match=r"header|line|Expected|Unterminated"):
        catalog.parse("broken", text)


@pytest.mark.parametrize(
    ("default", "text", "expected"),
    [
        (20, "5", 5),
        (20, "-1", -1),
        (0.5, "0.25", 0.25),
        (0.5, "2", 2.0),
        ("role", "role,op", "role,op"),
        ("role", "5", "5"),
        (False, "true", True),
        (False, "YES", True),
        (False, "1", True),
        (True, "false", False),
        (True, "No", False),
        (True, "0", False),
    ],
)
def test_a_text_becomes_the_type_of_the_default(default: Value, text: str, expected: Value) -> None:
    value = Param("p", default, "It.").parse(text)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("default", "text", "expected"),
    [
        (20, "many", snapshot("parameter p: 'many' is not a whole number: write -p p=20")),
        (20, "2.5", snapshot("parameter p: '2.5' is not a whole number: write -p p=20")),
        (0.5, "half", snapshot("parameter p: 'half' is not a number: write -p p=0.5")),
        (False, "maybe", snapshot("parameter p: 'maybe' is neither true nor false: write -p p=true")),
    ],
)
def test_a_text_that_does_not_fit_is_refused_with_an_example(default: Value, text: str, expected: str) -> None:
    with pytest.raises(TracekitError) as raised:
        Param("p", default, "It.").parse(text)
    assert str(raised.value) == expected


def test_values_given_replace_defaults_as_text_or_in_their_type() -> None:
    asked = catalog.question("kernel_attribution")
    assert asked.values({}) == {"by": "role,module,op,family", "by_step": False, "top": 40}
    assert asked.values({"top": "5", "by_step": "yes"}) == asked.values({"top": 5, "by_step": True})
    assert asked.values({"top": 5, "by_step": True}) == {"by": "role,module,op,family", "by_step": True, "top": 5}


def test_a_parameter_that_is_not_taken_is_refused_with_those_that_are() -> None:
    with pytest.raises(TracekitError) as raised:
        catalog.question("kernel_attribution").values({"limit": 5})
    assert str(raised.value) == snapshot("kernel_attribution has no parameter 'limit': it takes: by_step, top, by")
    with pytest.raises(TracekitError) as raised:
        catalog.question("attention_share").values({"top": 5})
    assert str(raised.value) == snapshot("attention_share has no parameter 'top': it takes: none")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "attention_shares",
            snapshot("there is no question 'attention_shares': did you mean attention_share or attention_calls?"),
        ),
        ("kernels", snapshot("there is no question 'kernels': did you mean top_kernels or kernel_fusion?")),
        ("zzz", snapshot("there is no question 'zzz': `tracekit query --list` names them all")),
        (
            "../queries/top_kernels",
            snapshot("there is no question '../queries/top_kernels': did you mean top_kernels or unlinked_kernels?"),
        ),
        ("", snapshot("there is no question '': `tracekit query --list` names them all")),
    ],
)
def test_a_question_that_does_not_exist_is_refused_with_the_nearest_names(name: str, expected: str) -> None:
    with pytest.raises(TracekitError) as raised:
        catalog.question(name)
    assert str(raised.value) == expected


def test_names_are_sorted_and_each_can_be_asked_for() -> None:
    names = catalog.names()
    assert names == sorted(names)
    assert [catalog.question(name).name for name in names] == names


def test_a_column_is_looked_up_before_its_table() -> None:
    assert "record_shapes" in catalog.how_to_record("op.input_dims")
    assert catalog.how_to_record("op.name") != catalog.how_to_record("op.input_dims")
    assert catalog.how_to_record("kernel.dur_ns") == catalog.how_to_record("kernel.name")


def test_what_a_run_lacks_is_what_holds_no_value() -> None:
    asked = catalog.parse("pieces", HEADER)
    with run(op("aten::mm", 0, 10)) as opened:
        tables = opened.tables
    with Store(tables) as store:
        assert catalog.missing(asked, store) == ["kernel.dur_ns"]
    with run(kernel("gemm", 0, 10)) as opened:
        tables = opened.tables
    with Store(tables) as store:
        assert catalog.missing(asked, store) == ["op.name"]


def test_a_run_that_lacks_something_is_refused_with_how_to_record_it() -> None:
    with run(op("aten::mm", 0, 10)) as opened, pytest.raises(TracekitError) as raised:
        opened.query("unlinked_kernels")
    assert raised.value.problem == snapshot(
        "unlinked_kernels is not derivable from this run: it holds no kernel.dur_ns"
    )
    assert raised.value.remedy == snapshot(
        "it needs device activity: profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on a GPU"
    )


def test_a_selection_that_lacks_something_is_told_apart_from_a_run_that_does() -> None:
    events = work("gemm", 20, 10, 1, op_name="aten::mm")
    with run(events, selection=only(phases=["backward"])) as opened, pytest.raises(TracekitError) as raised:
        opened.query("kernel_attribution")
    assert raised.value.problem == snapshot(
        "kernel_attribution is not derivable from this run: it holds no work.dur_ns in the selected part"
    )
    assert raised.value.remedy.startswith("select more; where the whole run lacks it, it needs ops or device activity")


def test_a_number_that_no_column_holds_is_refused() -> None:
    with pytest.raises(TracekitError, match="parameter top: '99999999999999999999' is not a whole number"):
        catalog.question("top_kernels").values({"top": "99999999999999999999"})
