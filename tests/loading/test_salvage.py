"""A broken trace answers like the unbroken one less the lost events, says what was lost, and is refused if asked to."""

from __future__ import annotations

import gzip
import json
import zipfile
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.build import Event, annotation, frame, kernel, launch, memory, op, step, work
from tests.ingest.breakages import BREAKAGES, UNHARMED, compact, pretty, real_events, seam
from tracekit import bundle
from tracekit.errors import TracekitError
from tracekit.ingest import events as shape
from tracekit.ingest import read_bytes
from tracekit.ingest.salvage import salvage
from tracekit.loading import Settings, load, open_tables, tables_of

if TYPE_CHECKING:
    from pathlib import Path

OPENING = b'{"schemaVersion": 1, "baseTimeNanoseconds": 0, "distributedInfo": {"rank": 3}, "traceEvents": ['
CLOSING = b'], "traceName": "t.json"}'
CUT = {
    "cut at the end",
    "cut in an escape at the end",
    "zeros at the end",
    "missing closing brace before the array's end",  # which looks alike where the last event has a shape of its own
}
"""Breakages of a file that ends too early, whatever ends it."""
CLOSED = {"array's end and keys", "keys without the array's end"}
"""Breakages of the file's own end, which they bring with them."""
ABOUT_DAMAGE = {"cut_off", "damaged_file", "lost_event", "lost_key", "repaired_event", "unreadable_event"}
REAL = ["h100-ddp-small.json", "rtx4080-nanovllm-forward.json", "legacy-categories.json.gz"]
HAND: list[Event | list[Event]] = [
    step(1, 0, 100),
    *(frame(f"nn.Module: Linear_{number}", 10 * number, 9, number) for number in range(1, 6)),
    *(work("gemm", 12 + 10 * number, 5, number, op_name="aten::linear") for number in range(1, 6)),
    *(memory(40 + number, 64 * number, 512, 512 * number) for number in range(1, 4)),
    op("aten::scaled_dot_product_attention", 80, 9, Input_Dims=[[1, 2, 8, 4]] * 3, Sequence_number=4),
    launch(82, 90),
    kernel("flash_fwd_kernel", 85, 4, 90, grid=[1, 2, 3]),
    annotation("Optimizer.step#AdamW.step", 91, 5),
    {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 120},
]


class Broken(NamedTuple):
    """A broken trace, its list of events as it stands, and how many events came through unharmed."""

    data: bytes
    listed: bytes
    whole: int


def hand_made() -> list[bytes]:
    rows = [row for entry in HAND for row in (entry if isinstance(entry, list) else [entry])]
    return [pretty(row) if number % 2 else compact(row) for number, row in enumerate(rows)]


@pytest.fixture(scope="module")
def samples(traces: Path) -> dict[str, list[bytes]]:
    """Return events of a small trace typed by hand and of real ones."""
    return {"hand": hand_made(), **{name: real_events(traces / name) for name in REAL}}


def broken(kind: str, events: list[bytes], seed: int) -> Broken:
    """Break a trace in one way, in the middle of it or, where that is the way, at its end."""
    random = Random(f"{kind} {seed}")
    first = random.randrange(max(1, len(events) - 8))
    last = len(events) if kind in CUT | CLOSED else first + 8
    if kind in CUT | CLOSED or "end" in kind:
        first, last = max(0, len(events) - 8), len(events)
    before, middle, after = events[:first], events[first:last], events[last:]
    between = seam(events)
    text, may_change = BREAKAGES[kind](random, middle)
    if kind == "cut at the beginning":
        before = []
    listed = between.join([*before, text, *after])
    closing = b"" if kind in CUT | CLOSED else CLOSING
    return Broken(OPENING + listed + closing, listed, len(before) + len(middle) + len(after) - len(may_change))


def clean(events: list[bytes]) -> dict[str, pl.DataFrame]:
    return tables_of(OPENING + b",".join(events) + CLOSING, "t.json")


def assert_same(found: dict[str, pl.DataFrame], expected: dict[str, pl.DataFrame]) -> None:
    """Compare all tables but what is said of the file itself."""
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        if name == "quality":
            continue
        of_the_file = ["source_sha256", "source_name", "truncated", "is_rewritten"] if name == "trace" else []
        assert_frame_equal(found[name].drop(of_the_file), rows.drop(of_the_file))


def noticed(tables: dict[str, pl.DataFrame]) -> dict[str, int]:
    rows = tables["quality"].filter(pl.col("check_name").is_in(ABOUT_DAMAGE))
    assert rows["first_offset"].null_count() == 0
    return dict(rows.group_by("check_name").agg(pl.col("count").sum()).iter_rows())


def is_valid(data: bytes) -> bool:
    """Tell whether this is JSON in Unicode without repeated keys, by the strictest reader there is."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError(pairs)
        return dict(pairs)

    try:
        read = json.loads(data, parse_constant=refuse, object_pairs_hook=once)
        json.dumps(read, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    return True


@pytest.mark.parametrize("kind", sorted(BREAKAGES))
def test_a_repaired_trace_answers_like_the_unbroken_one_less_the_lost_events(
    kind: str, samples: dict[str, list[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracekit.ingest.repeats._SAMPLES", 2**20)  # so that all text is looked at
    for seed, (name, events) in enumerate(samples.items()):
        case = broken(kind, events, seed)
        tables = tables_of(case.data, "t.json")
        saved = salvage(case.listed, 0)
        assert_same(tables, clean([event.text for event in saved.events]))
        if len(saved.events) == len(events) == case.whole:
            assert_same(tables, clean(events))
        assert tables["trace"]["events"].item() >= case.whole, name
        assert tables["trace"]["truncated"].item() is (kind in CUT)
        assert tables["trace"]["rank"].item() == 3
        found = noticed(tables)
        assert found.get("lost_event", 0) >= len(saved.lost)
        assert bool(found.keys() - {"unreadable_event"}) is not is_valid(case.data), (kind, name, found)
        strictly(case.data, tmp_path, is_refused=bool(found))


def strictly(data: bytes, folder: Path, *, is_refused: bool) -> None:
    """Load a file with `is_strict`, which refuses it in one line and leaves no output, or takes it."""
    source, output = folder / "t.json", folder / "t.tkb"
    source.write_bytes(data)
    if not is_refused:
        load(source, output, settings=Settings(is_strict=True), overwrite=True)
        output.unlink()
        return
    with pytest.raises(TracekitError) as caught:
        load(source, output, settings=Settings(is_strict=True))
    assert "\n" not in str(caught.value)
    assert "without --strict" in caught.value.remedy
    assert [path.name for path in folder.iterdir()] == ["t.json"]


@pytest.mark.parametrize("kind", sorted(UNHARMED))
def test_odd_but_valid_events_change_nothing_of_the_others(kind: str, samples: dict[str, list[bytes]]) -> None:
    for seed, events in enumerate(samples.values()):
        case = broken(kind, events, seed)
        assert noticed(tables_of(case.data, "t.json")) == {}


def test_what_is_lost_is_named_with_its_number_and_its_place() -> None:
    events = hand_made()
    at = len(OPENING) + len(b",".join(events[:7])) + 1
    cut = b",".join([*events[:7], events[7][:20], *events[8:]])
    tables = tables_of(OPENING + cut + CLOSING, "t.json")
    assert tables["quality"].filter(pl.col("check_name") == "lost_event").select(
        "severity", "count", "first_offset", "message"
    ).rows() == [("bad", 1, at, "Text that gave no event: an event without its end; first: 20 bytes.")]
    assert_same(tables, clean(events[:7] + events[8:]))


@pytest.mark.parametrize("place", range(1, 12))
def test_a_file_cut_anywhere_keeps_every_event_that_ended(place: int, samples: dict[str, list[bytes]]) -> None:
    for name, events in samples.items():
        text = OPENING + b",\n".join(events) + CLOSING
        first = len(OPENING) + len(events[0])
        end = first + (len(text) - first) * place // 12
        tables = tables_of(text[:end], "t.json")
        kept = tables["trace"]["events"].item()
        at = len(OPENING) + len(b",\n".join(events[:kept]))
        assert at <= end < at + len(events[min(kept, len(events) - 1)]) + len(b",\n") + len(CLOSING), name
        assert tables["trace"]["truncated"].item()
        assert_same(tables, clean(events[:kept]))


def test_a_file_cut_between_events_is_cut_all_the_same() -> None:
    events = hand_made()
    for end in (b"", b",", b", ", b"\n", b"]"):
        tables = tables_of(OPENING + b",".join(events) + end, "t.json")
        assert tables["trace"]["truncated"].item()
        assert noticed(tables) == {"cut_off": 1}
        assert_same(tables, clean(events))


def test_a_second_list_of_events_is_told_of() -> None:
    first, second = hand_made()[:-3], hand_made()[-3:]
    for closing in (b'],"traceEvents":[%s]}', b'],"a":1,"traceEvents":[%s],"b":{}}'):
        tables = tables_of(OPENING + b",".join(first) + closing % b",".join(second), "t.json")
        lost = tables["quality"].filter(pl.col("check_name") == "lost_event")
        assert lost.select("count", "severity").rows() == [(3, "bad")]
        assert lost["message"].item().startswith("Text that gave no event: events of a second list named traceEvents")
        assert tables["trace"]["events"].item() == len(first)


def test_a_trace_without_work_is_bad() -> None:
    tables = tables_of(OPENING + b'{"ph": "M", "name": "process_name", "pid": 3, "tid": 0}' + CLOSING, "t.json")
    assert tables["quality"].filter(severity="bad").select("check_name").rows() == [("no_work",)]


def test_a_packed_trace_whose_tail_is_lost_is_read_up_to_there(samples: dict[str, list[bytes]], tmp_path: Path) -> None:
    for events in list(samples.values())[1:3]:
        packed = gzip.compress(OPENING + b",\n".join(events) + CLOSING)
        (tmp_path / "t.json.gz").write_bytes(packed[: len(packed) * 2 // 3])
        done = load(tmp_path / "t.json.gz", tmp_path / "t.tkb", overwrite=True)
        assert 0.4 * len(events) < done.events < len(events)
        tables = {
            name: rows.cast({pl.Categorical: pl.String}).collect()
            for name, rows in open_tables(tmp_path / "t.tkb").items()
        }
        expected = clean(events[: done.events])
        assert_same(tables, {name: expected[name] for name in tables})
        assert noticed(tables)["damaged_file"] == 1
        assert tables["trace"]["truncated"].item()
        from_bytes = tables_of((tmp_path / "t.json.gz").read_bytes(), "t.json.gz")
        for name, rows in tables.items():
            assert_frame_equal(from_bytes[name], rows)
        with pytest.raises(TracekitError, match="its gzip data ends too early") as caught:
            load(tmp_path / "t.json.gz", tmp_path / "s.tkb", settings=Settings(is_strict=True))
        assert "without --strict" in caught.value.remedy
        assert not (tmp_path / "s.tkb").exists()


def test_an_archive_of_two_traces_is_refused_and_names_them(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        for name in ("rank0.json", "rank1.json"):
            archive.writestr(name, OPENING + b",".join(hand_made()) + CLOSING)
    with pytest.raises(TracekitError, match=r"2 files \(rank0\.json, rank1\.json\), not of one trace"):
        load(tmp_path / "t.zip", tmp_path / "t.tkb")
    assert [path.name for path in tmp_path.iterdir()] == ["t.zip"]


def test_an_archive_that_unpacks_to_far_more_is_refused_unless_it_is_trusted(tmp_path: Path) -> None:
    source, output = tmp_path / "t.json.gz", tmp_path / "t.tkb"
    source.write_bytes(gzip.compress(OPENING + b" " * 2**25 + b",".join(hand_made()) + CLOSING))
    with pytest.raises(TracekitError, match="give --trust-archive"):
        load(source, output)
    assert not output.exists()
    assert load(source, output, settings=Settings(trust_archive=True)).events == len(hand_made())
    assert all(check.ok for check in bundle.verify(output))


def test_a_file_that_is_one_event_is_a_trace_of_one_event() -> None:
    for event in hand_made():
        events = read_bytes(event, "t.json")
        assert events.recording.events == 1
        assert sum(getattr(events, name).height for name in shape.TABLES) == 1


@pytest.mark.parametrize("opening", [b"[", b"\xef\xbb\xbf[", b"\n [\n"])
def test_a_bare_list_is_a_trace_whatever_precedes_it(opening: bytes) -> None:
    events = hand_made()
    tables = tables_of(opening + b",".join(events) + b"]\n", "t.json")
    expected = clean(events)
    for name in ("op", "kernel", "launch", "frame", "memory_sample", "module", "step"):
        assert_frame_equal(tables[name], expected[name])
    assert noticed(tables) == {}


def test_a_byte_order_mark_changes_nothing() -> None:
    data = OPENING + b",".join(hand_made()) + CLOSING
    tables = tables_of(b"\xef\xbb\xbf" + data, "t.json")
    assert_same(tables, tables_of(data, "t.json"))
    assert noticed(tables) == {}


def test_commas_too_many_beside_the_events_lose_nothing() -> None:
    head = b'{"a": {"b": ["x,]", "y",],},\n "deviceProperties": [{"id": 0, "name": "NVIDIA H100",},], "traceEvents": ['
    tables = tables_of(head + b",".join(hand_made()) + CLOSING, "t.json")
    assert tables["trace"]["device_name"].item() == "NVIDIA H100"
    assert noticed(tables) == {"repaired_event": 1}
    assert tables["quality"].filter(check_name="repaired_event")["first_offset"].item() == head.index(b",],") + 1
