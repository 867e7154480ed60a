"""The registry of formats, and what importing it costs."""

import subprocess
import sys

import pytest
from inline_snapshot import snapshot

from tracekit.errors import TracekitError
from tracekit.render import FORMATS, format_for_path, notes_text, render
from tracekit.table import Table


def test_the_formats_are_those_the_command_line_offers() -> None:
    assert list(FORMATS) == ["table", "csv", "tsv", "json", "md", "parquet", "page"]


@pytest.mark.parametrize("name", list(FORMATS))
def test_every_format_writes_the_awkward_table_and_the_empty_one(name: str, awkward: Table, empty: Table) -> None:
    assert len(render(awkward, name)) > len(render(empty, name)) > 0


@pytest.mark.parametrize("name", list(FORMATS))
def test_every_format_writes_the_same_bytes_twice(name: str, awkward: Table) -> None:
    assert render(awkward, name) == render(awkward, name)


@pytest.mark.parametrize("name", [name for name, known in FORMATS.items() if not known.is_binary])
def test_every_text_format_is_utf8_and_ends_in_one_newline(name: str, awkward: Table, empty: Table) -> None:
    for table in (awkward, empty):
        text = render(table, name).decode()
        assert text.endswith("\n")
        assert not text.endswith("\n\n")


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_format_carries_the_notes_exactly_if_it_says_so(name: str, awkward: Table) -> None:
    assert (b"steps 2 to 5" in render(awkward, name)) == FORMATS[name].notes_inside


def test_only_text_for_reading_heeds_the_width(awkward: Table) -> None:
    heeding = [name for name in FORMATS if render(awkward, name, 80) != render(awkward, name)]
    assert heeding == ["table", "page"]


def test_an_unknown_format_names_the_known_ones(awkward: Table) -> None:
    with pytest.raises(TracekitError) as caught:
        render(awkward, "xlsx")
    assert str(caught.value) == snapshot(
        "there is no format 'xlsx': choose one of table, csv, tsv, json, md, parquet, page"
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("out.csv", "csv"),
        ("dir.d/out.TSV", "tsv"),
        ("out.json", "json"),
        ("README.md", "md"),
        ("a.b.parquet", "parquet"),
        ("out.txt", "table"),
        ("out.html", None),
        ("csv", None),
    ],
)
def test_a_suffix_stands_for_a_format(path: str, expected: str | None) -> None:
    assert format_for_path(path) == expected


def test_no_suffix_stands_for_two_formats() -> None:
    suffixes = [suffix for known in FORMATS.values() for suffix in known.suffixes]
    assert len(suffixes) == len(set(suffixes))


def test_notes_are_lines_that_a_terminal_prints(awkward: Table) -> None:
    assert notes_text(awkward) == snapshot("""\
exact: total_ns counts every kernel
estimated: launches | guessed\\nfrom <graphs>
not derivable: ratio: the trace has no shapes
note: steps 2 to 5
warning: \\x1b[31mred
""")


def test_no_notes_are_no_text(awkward: Table) -> None:
    assert notes_text(Table("bare", awkward.frame, awkward.docs)) == ""


def test_importing_the_registry_imports_nothing_heavy() -> None:
    code = "import sys, tracekit.render; print({'polars', 'rich', 'msgspec'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
