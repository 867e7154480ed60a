"""`tracekit load`: a trace becomes a bundle, or one line says why it doesn't."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from typing import TYPE_CHECKING

import pytest
from inline_snapshot import snapshot

from tests.build import document, op
from tracekit.bundle import Bundle
from tracekit.errors import TracekitError
from tracekit.loading import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Said

HEALTHY = document(*(op(f"aten::op{number}", 10 * number, 5) for number in range(2000)))


def test_load_writes_a_bundle_and_says_so_on_stderr(tracekit: Callable[..., Said], trace: Path, folder: Path) -> None:
    said = tracekit("load", trace, "-o", "train.tkb")
    assert (said.code, said.out) == (0, "")
    summary, warnings = said.err.splitlines()
    assert summary.startswith("train.tkb: 12 events, 4 pieces of device work, 0.1 MiB, ")
    assert warnings == snapshot(
        "warning: Device work without an op: no launch with its correlation in the trace (see `tracekit doctor train.tkb`)."
    )
    opened = Bundle.open(folder / "train.tkb")
    assert opened.names("raw/") == []
    assert opened.manifest.left_out == {"raw": "not asked for; load with --keep-raw to keep the trace"}


def test_keep_raw_keeps_the_very_bytes_of_the_trace(tracekit: Callable[..., Said], trace: Path, folder: Path) -> None:
    packed = folder / "packed.json.gz"
    packed.write_bytes(gzip.compress(trace.read_bytes()))
    for source in (trace, packed):
        assert tracekit("load", source, "-o", "raw.tkb", "--keep-raw", "--force").code == 0
        opened = Bundle.open(folder / "raw.tkb")
        (name,) = opened.names("raw/")
        assert name == f"raw/{source.name.removesuffix('.gz')}.gz"
        assert gzip.decompress(opened.read(name)) == trace.read_bytes()
        assert opened.manifest.left_out == {}


def test_a_bundle_that_exists_is_kept_unless_forced(tracekit: Callable[..., Said], trace: Path, folder: Path) -> None:
    kept = folder / "train.tkb"
    kept.write_text("mine")
    assert tracekit("load", trace, "-o", "train.tkb").fault == (
        "train.tkb exists: choose another name, or give --force to replace it"
    )
    assert kept.read_text() == "mine"
    assert tracekit("load", trace, "-o", "train.tkb", "--force").code == 0
    assert Bundle.open(kept).names("tables/")


def test_what_load_is_given_must_be_traces_of_one_run(
    tracekit: Callable[..., Said], trace: Path, run_file: Path
) -> None:
    assert tracekit("load", run_file, "-o", "x.tkb").fault == f"{run_file} is a bundle already: query it as it is"
    assert tracekit("load", trace, trace, "-o", "x.tkb").fault == f"{trace} is given twice: give each trace once"
    other = trace.with_name("other.json")
    other.write_bytes(HEALTHY)
    assert tracekit("load", trace, other, "-o", "x.tkb").code == 0
    for args, line in (
        ([trace], "Error: Missing option '-o' / '--output'."),
        (["-o", "x.tkb"], "Error: Missing argument 'TRACES...'."),
        ([trace, "-o", "."], "Error: Invalid value for '-o' / '--output': File '.' is a directory."),
        ([trace, "-o", ""], "Error: Invalid value for '-o' / '--output': '' is not the name of a file."),
    ):
        said = tracekit("load", *args)
        assert (said.code, said.err.splitlines()[-1]) == (2, line)


@pytest.mark.parametrize("output", ["no/such/folder/x.tkb", "train.json/x.tkb", f"{'x' * 250}.tkb"])
def test_a_bundle_that_cannot_be_written_leaves_nothing_behind(
    tracekit: Callable[..., Said], trace: Path, folder: Path, output: str
) -> None:
    assert tracekit("load", trace, "-o", output).fault.startswith(f"{output} can't be written (")
    assert [path.name for path in folder.iterdir()] == ["train.json"]


def test_a_folder_for_temporary_files_that_does_not_exist_is_refused(
    tracekit: Callable[..., Said], trace: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(folder / "gone"))
    fault = f"TMPDIR is {folder / 'gone'}, not a folder that can be written to: make it, or unset TMPDIR"
    assert tracekit("load", trace, "-o", "x.tkb").fault == fault
    assert tracekit("load", trace, "-o", "x.tkb", "--force").fault == fault
    (folder / "gone").mkdir()
    assert tracekit("load", trace, "-o", "x.tkb").code == 0
    assert list((folder / "gone").iterdir()) == []


def test_the_library_refuses_a_folder_for_a_bundle_too(trace: Path, folder: Path) -> None:
    for output in ("", folder):
        with pytest.raises(TracekitError, match=r" is a folder, not a file: name one to write, such as run\.tkb$"):
            load(trace, output, overwrite=True)


def _zip(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


BAD = {
    "text": (
        b"hello",
        snapshot("bad.json is not JSON, so no profiler trace: give a .json or .json.gz trace, or a .tkb"),
    ),
    "empty": (b"", snapshot("bad.json is empty: record the trace again, or get the file again")),
    "blank": (b" \n", snapshot("bad.json is empty: record the trace again, or get the file again")),
    "no list of events": (
        b'{"a": 1}',
        snapshot(
            "bad.json is JSON but no profiler trace (no list named traceEvents): give a file written by "
            "torch.profiler's export_chrome_trace"
        ),
    ),
    "events that are no list": (
        b'{"traceEvents": 5}',
        snapshot(
            "bad.json is JSON but no profiler trace (no list named traceEvents): give a file written by "
            "torch.profiler's export_chrome_trace"
        ),
    ),
    "no events": (
        b'{"traceEvents": []}',
        snapshot("bad.json: traceEvents is empty: the profiler recorded nothing: check its schedule"),
    ),
    "an empty list": (
        b"[]",
        snapshot("bad.json: traceEvents is empty: the profiler recorded nothing: check its schedule"),
    ),
    "cut before an event ended": (
        HEALTHY[:90],
        snapshot(
            "bad.json is cut off before its first event ended: get the file again, or let the profiler finish its export"
        ),
    ),
    "the start of a gzip": (
        b"\x1f\x8b",
        snapshot("bad.json: its gzip data ends too early, after 0 bytes of text: get the file again"),
    ),
    "gzip damaged at its start": (
        gzip.compress(HEALTHY, mtime=0)[:30] + bytes(300),
        snapshot("bad.json: its gzip data is damaged after 0 bytes of text: get the file again"),
    ),
    "no whole event": (
        b'{"traceEvents": [{"ph": "X", "ts": {{{, "dur": [[}]}',
        snapshot(
            "bad.json holds no event that can be read (an event without its end, at byte 17): get the file again, or record it again"
        ),
    ),
    "nested too deeply": (
        b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        snapshot(
            "bad.json: its JSON is nested too deeply for a profiler trace: give a file written by torch.profiler's export_chrome_trace"
        ),
    ),
    "events nested too deeply": (
        b'{"traceEvents": [{"ph": "X", "args": ' + b"[" * 200_000 + b"]" * 200_000 + b"}]}",
        snapshot(
            "bad.json holds no event that can be read (an event nested too deeply, at byte 17): get the file again, or record it again"
        ),
    ),
    "a ZIP": (
        b"PK\x03\x04" + bytes(100),
        snapshot("bad.json: its ZIP archive is cut off or damaged: get the file again"),
    ),
    "a ZIP of two traces": (
        _zip(**{"rank0.json": HEALTHY, "rank1.json": HEALTHY}),
        snapshot(
            "bad.json is a ZIP archive of 2 files (rank0.json, rank1.json), not of one trace: unpack it, and give the trace inside, or the folder"
        ),
    ),
    "an archive bomb": (
        gzip.compress(b" " * 2**25 + HEALTHY, mtime=0),
        snapshot(
            "bad.json unpacks to more than 16,777,216 bytes, far more than traces do: if you trust where it comes from, give --trust-archive"
        ),
    ),
    "a pickle": (
        b"\x80\x04K\x01.",
        snapshot(
            "bad.json is a Python pickle, not a profiler trace: give a trace written by torch.profiler (.json "
            "or .json.gz)"
        ),
    ),
    "random bytes": (
        bytes(range(256)) * 4,
        snapshot("bad.json is not JSON, so no profiler trace: give a .json or .json.gz trace, or a .tkb"),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_no_trace_is_a_fault_in_one_line(tracekit: Callable[..., Said], folder: Path, name: str) -> None:
    data, line = BAD[name]
    (folder / "bad.json").write_bytes(data)
    for args in (["load", "bad.json", "-o", "x.tkb"], ["query", "bad.json", "top_kernels"], ["summary", "bad.json"]):
        assert tracekit(*args).fault == line
    assert [path.name for path in folder.iterdir()] == ["bad.json"]


@pytest.mark.parametrize("args", [["load", "-o", "x.tkb"], ["query"], ["summary"]])
def test_a_path_that_is_no_file_is_a_fault_in_one_line(
    tracekit: Callable[..., Said], folder: Path, args: list[str]
) -> None:
    (folder / "runs").mkdir()
    assert tracekit(*args, "missing.json").fault == "missing.json: no such file: check the path"
    assert tracekit(*args, "runs").fault == (
        "runs holds no trace: give the folder that the .json or .json.gz files lie in"
    )


def test_a_name_ending_in_tkb_must_be_a_bundle(tracekit: Callable[..., Said], folder: Path) -> None:
    (folder / "run.tkb").write_bytes(HEALTHY)
    assert tracekit("query", "run.tkb", "top_kernels").fault == (
        "run.tkb is not a tracekit bundle: `tracekit load` makes one from a trace"
    )


def test_events_that_cannot_be_read_are_told_of(tracekit: Callable[..., Said], folder: Path) -> None:
    trace = json.loads(HEALTHY)
    trace["traceEvents"][5] = 7
    (folder / "odd.json").write_text(json.dumps(trace))
    said = tracekit("load", "odd.json", "-o", "odd.tkb")
    assert said.code == 0
    assert said.err.splitlines()[1:] == snapshot(
        [
            "warning: Events of the wrong shape, kept whole in other_event. First: Expected `object`, got `int` (see `tracekit doctor odd.tkb`)."
        ]
    )


STRICT = {
    "cut JSON": (
        HEALTHY[:5000],
        snapshot(
            "bad.json: The file ends before the trace does: what came after is missing (first at byte 5,000): load it without --strict"
        ),
        snapshot(
            "warning: The file ends before the trace does: what came after is missing; 1 more (see `tracekit doctor x.tkb`)."
        ),
    ),
    "cut before its end": (
        HEALTHY[:-1],
        snapshot(
            "bad.json: The file ends before the trace does: what came after is missing (first at byte 223,841): load it without --strict"
        ),
        snapshot(
            "warning: The file ends before the trace does: what came after is missing (see `tracekit doctor x.tkb`)."
        ),
    ),
    "cut gzip": (
        gzip.compress(HEALTHY, mtime=0)[:-300],
        snapshot(
            "bad.json: its gzip data ends too early, after 218,127 bytes of text: get the file again, or load it without --strict"
        ),
        snapshot(
            "warning: The file is damaged: what could be unpacked was read. First: its gzip data ends too early, after 218,127 bytes of text; 1 more (see `tracekit doctor x.tkb`)."
        ),
    ),
    "damaged gzip": (
        gzip.compress(HEALTHY, mtime=0)[:900] + bytes(300),
        snapshot(
            "bad.json: its gzip data ends too early, after 17,754 bytes of text: get the file again, or load it without --strict"
        ),
        snapshot(
            "warning: The file is damaged: what could be unpacked was read. First: its gzip data ends too early, after 17,754 bytes of text; 1 more (see `tracekit doctor x.tkb`)."
        ),
    ),
    "broken JSON": (
        HEALTHY.replace(b'"name": "aten::op7"', b'"name": aten::op7', 1),
        snapshot(
            "bad.json: Text that gave no event: an event without its end; first: 103 bytes (first at byte 811): load it without --strict"
        ),
        snapshot(
            "warning: Text that gave no event: an event without its end; first: 103 bytes (see `tracekit doctor x.tkb`)."
        ),
    ),
    "a name with quotes": (
        HEALTHY.replace(b"aten::op7", b'f("x")', 1),
        snapshot(
            "bad.json: Repaired while reading: quotes within text were escaped (first at byte 811): load it without --strict"
        ),
        snapshot("warning: Repaired while reading: quotes within text were escaped (see `tracekit doctor x.tkb`)."),
    ),
    "an event that is a number": (
        HEALTHY.replace(b"[{", b"[7, {", 1),
        snapshot(
            "bad.json: Events of the wrong shape, kept whole in other_event. First: Expected `object`, got `int` (first at byte 63): load it without --strict"
        ),
        snapshot(
            "warning: Events of the wrong shape, kept whole in other_event. First: Expected `object`, got `int` (see `tracekit doctor x.tkb`)."
        ),
    ),
}


@pytest.mark.parametrize("name", STRICT)
def test_a_damaged_trace_is_read_as_far_as_can_be_and_refused_where_that_is_asked_for(
    tracekit: Callable[..., Said], folder: Path, name: str
) -> None:
    data, line, warning = STRICT[name]
    (folder / "bad.json").write_bytes(data)
    assert tracekit("load", "bad.json", "-o", "x.tkb", "--strict").fault == line
    assert [path.name for path in folder.iterdir()] == ["bad.json"]
    said = tracekit("load", "bad.json", "-o", "x.tkb")
    assert said.code == 0
    assert said.err.splitlines()[1:] == [warning]


def test_an_archive_of_any_ratio_is_read_where_it_is_trusted(tracekit: Callable[..., Said], folder: Path) -> None:
    (folder / "bomb.json.gz").write_bytes(gzip.compress(b" " * 2**25 + HEALTHY))
    said = tracekit("load", "bomb.json.gz", "-o", "x.tkb", "--trust-archive")
    assert (said.code, said.err.startswith("x.tkb: 2,000 events, ")) == (0, True)
