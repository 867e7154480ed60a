"""A trace is found inside whatever wraps it, and what is none is refused with a telling line."""

from __future__ import annotations

import gzip
import io
import pickle
import zipfile
from typing import TYPE_CHECKING

import pytest
from inline_snapshot import snapshot

from tests.build import document, op
from tracekit.errors import TracekitError
from tracekit.ingest import read, read_bytes, read_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TRACE = document(op("aten::mm", 0, 1))


def _zip(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("trace.json", data)
    return buffer.getvalue()


WRAPPINGS: dict[str, Callable[[bytes], bytes]] = {
    "bare": bytes,
    "gzip": gzip.compress,
    "gzip_twice": lambda data: gzip.compress(gzip.compress(data)),
    "gzip_in_members": lambda data: gzip.compress(data[:40]) + gzip.compress(data[40:]),
    "byte_order_mark": lambda data: b"\xef\xbb\xbf" + data,
    "blanks_around": lambda data: b"\n \t" + data + b"\r\n\n",
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_a_trace_is_read_through(wrapping: str) -> None:
    assert read_bytes(WRAPPINGS[wrapping](TRACE), "t.json").ops["name"].to_list() == ["aten::mm"]


def test_the_name_of_a_file_says_nothing_of_what_is_inside(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_bytes(gzip.compress(TRACE))
    events = read(path)
    assert events.recording.source_name == "trace.txt"
    assert events.ops.height == 1


def test_the_hash_is_that_of_the_file_as_it_lies_on_disk() -> None:
    packed = gzip.compress(TRACE, mtime=0)
    assert read_bytes(packed, "t").recording.source_sha256 != read_bytes(TRACE, "t").recording.source_sha256


FOREIGN: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "t.json is empty: record the trace again, or get the file again"),
    "blanks": (b" \n\t", "t.json is empty: record the trace again, or get the file again"),
    "gzip_of_nothing": (gzip.compress(b""), "t.json is empty: record the trace again, or get the file again"),
    "zip": (
        _zip(TRACE),
        "t.json is a ZIP archive, not a profiler trace: unpack it and give the .json or .json.gz inside",
    ),
    "gzip_of_zip": (
        gzip.compress(_zip(TRACE)),
        "t.json is a ZIP archive, not a profiler trace: unpack it and give the .json or .json.gz inside",
    ),
    "zstd": (
        b"\x28\xb5\x2f\xfd\x00\x00",
        "t.json is a zstd archive, not a profiler trace: unpack it with `zstd -d` and give the .json inside",
    ),
    **{
        f"pickle_{protocol}": (
            pickle.dumps({"segments": []}, protocol),
            "t.json is a Python pickle, not a profiler trace: "
            "give a trace written by torch.profiler (.json or .json.gz)",
        )
        for protocol in (2, 3, 4, 5)
    },
    "html": (
        b"<html><body>404</body></html>",
        "t.json is not JSON, so no profiler trace: give a .json or .json.gz trace, or a .tkb",
    ),
    "gzip_thrice": (
        gzip.compress(gzip.compress(gzip.compress(TRACE))),
        "t.json is not JSON, so no profiler trace: give a .json or .json.gz trace, or a .tkb",
    ),
    "utf_16": (
        TRACE.decode().encode("utf-16"),
        "t.json is not JSON, so no profiler trace: give a .json or .json.gz trace, or a .tkb",
    ),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_is_no_trace_is_named_with_what_to_give_instead(kind: str) -> None:
    data, expected = FOREIGN[kind]
    with pytest.raises(TracekitError) as caught:
        read_bytes(data, "t.json")
    assert str(caught.value) == expected


@pytest.mark.parametrize("length", [3, 12, -9, -1])
def test_a_gzip_that_is_cut_off_is_said_to_be(length: int) -> None:
    with pytest.raises(TracekitError, match=r"^t\.gz: its gzip data is damaged or cut off \(.+\): get the file again$"):
        read_bytes(gzip.compress(TRACE)[:length], "t.gz")


@pytest.mark.parametrize("place", [3, 15, -6])
def test_a_gzip_with_a_wrong_byte_is_said_to_be_damaged(place: int) -> None:
    data = bytearray(gzip.compress(TRACE))
    data[place] ^= 0xFF
    with pytest.raises(TracekitError, match=r"^t\.gz: its gzip data is damaged or cut off"):
        read_bytes(bytes(data), "t.gz")


def test_a_path_that_can_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = tmp_path.relative_to(tmp_path)
    (here / "folder.json").mkdir()
    (here / "file.json").write_bytes(TRACE)
    messages = {}
    for name in ("missing.json", "folder.json", "file.json/x", "x" * 300):
        with pytest.raises(TracekitError) as caught:
            read_file(here / name)
        messages[name[:24]] = str(caught.value).replace("x" * 300, "xxx")
    assert messages == snapshot(
        {
            "missing.json": "missing.json: no such file: check the path",
            "folder.json": "folder.json is a folder: give one trace file or bundle",
            "file.json/x": "file.json/x can't be read (Not a directory): check the path and its rights",
            "xxxxxxxxxxxxxxxxxxxxxxxx": "xxx can't be read (File name too long): check the path and its rights",
        }
    )
