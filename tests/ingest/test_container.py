"""A trace is found inside whatever wraps it, as far as it can be unpacked; what is none is refused in a telling line."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import pickle
import random
import re
import socket
import struct
import subprocess
import sys
import tarfile
import threading
import time
import tracemalloc
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from tracekit.errors import TracekitError
from tracekit.ingest.container import Stream, opened

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TRACE = b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 1}]}'
LONG = json.dumps(
    [{"ts": n, "args": {"shape": random.Random(n).random(), "type": "long int"}} for n in range(30_000)]
).encode()
SKIPPED = b"\x5a\x2a\x4d\x18" + struct.pack("<I", 7) + b"skipped"


def _zip(
    data: bytes,
    name: str = "trace.json",
    method: int = zipfile.ZIP_DEFLATED,
    others: Mapping[str, bytes] = MappingProxyType({}),
) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for other, content in others.items():
            archive.writestr(other, content)
        archive.writestr(name, data)
    return buffer.getvalue()


def _zip_of_zstd(data: bytes) -> bytes:
    """Pack as ZIP method 93, which the standard library's ZIP does not write before Python 3.14."""
    packed = bytearray(_zip(zstd.compress(data), method=zipfile.ZIP_STORED))
    directory = packed.rindex(b"PK\x01\x02")
    for method, crc, size in ((8, 14, 22), (directory + 10, directory + 16, directory + 24)):
        packed[method : method + 2] = struct.pack("<H", 93)
        packed[crc : crc + 4] = struct.pack("<I", zlib.crc32(data))
        packed[size : size + 4] = struct.pack("<I", len(data))
    return bytes(packed)


def _streamed_zip(data: bytes) -> bytes:
    """Pack as a program does that writes into a pipe: the header before the data knows no size."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    buffer = Pipe()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("trace.json", data)
    return buffer.getvalue()


WRAPPINGS: dict[str, Callable[[bytes], bytes]] = {
    "bare": bytes,
    "gzip": gzip.compress,
    "gzip_twice": lambda data: gzip.compress(gzip.compress(data)),
    "gzip_in_members": lambda data: gzip.compress(data[:40]) + gzip.compress(b"") + gzip.compress(data[40:]),
    "zstd": zstd.compress,
    "zstd_in_frames": lambda data: SKIPPED + zstd.compress(data[:40]) + SKIPPED + zstd.compress(data[40:]) + SKIPPED,
    "zstd_of_gzip": lambda data: zstd.compress(gzip.compress(data)),
    "zip": _zip,
    "zip_stored": lambda data: _zip(data, method=zipfile.ZIP_STORED),
    "zip_of_zstd": _zip_of_zstd,
    "zip_streamed": _streamed_zip,
    "zip_of_gzip": lambda data: _zip(gzip.compress(data), "trace.json.gz"),
    "zip_by_macos": lambda data: _zip(
        data, "run/trace.json", others={"run/": b"", "__MACOSX/run/._trace.json": b"x", "run/.DS_Store": b"x"}
    ),
    "byte_order_mark": lambda data: b"\xef\xbb\xbf" + data,
    "blanks_around": lambda data: b"\n \t" + data + b"\r\n\n",
}


def drained(source: Path | bytes, name: str | None = None, size: int = 2**24) -> tuple[bytes, Stream]:
    """Read a stream to its end; return its text, and the stream."""
    with opened(source, name) as stream:
        return b"".join(stream.blocks(size)), stream


def refused(source: Path | bytes, name: str | None = None) -> str:
    with pytest.raises(TracekitError) as caught:
        drained(source, name)
    return str(caught.value)


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("size", [1000, 2**20, 2**24])
def test_a_text_of_many_pieces_comes_out_whole_in_blocks_of_one_size(tmp_path: Path, wrapping: str, size: int) -> None:
    packed = WRAPPINGS[wrapping](LONG)
    (tmp_path / "t").write_bytes(packed)
    with opened(tmp_path / "t") as stream:
        blocks = list(stream.blocks(size))
    assert b"".join(blocks).strip(b"\xef\xbb\xbf\n\r\t ") == LONG
    assert {len(block) for block in blocks[:-1]} <= {size}
    assert 0 < len(blocks[-1]) <= size
    assert stream.damage is None
    assert stream.text_bytes == sum(map(len, blocks))
    assert (stream.size, stream.sha256) == (len(packed), hashlib.sha256(packed).hexdigest())
    assert stream.is_plain == (wrapping in {"bare", "byte_order_mark", "blanks_around"})


@given(st.sampled_from(sorted(WRAPPINGS)), st.binary(min_size=1, max_size=300), st.integers(1, 400))
def test_the_size_of_blocks_changes_nothing(wrapping: str, rest: bytes, size: int) -> None:
    text, stream = drained(WRAPPINGS[wrapping](TRACE + rest), size=size)
    assert text.strip(b"\xef\xbb\xbf\n\r\t ") == (TRACE + rest).strip(b"\xef\xbb\xbf\n\r\t ")
    assert stream.damage is None


def test_the_name_of_a_file_says_nothing_of_what_is_inside(tmp_path: Path) -> None:
    path = tmp_path / "trace.zip"
    path.write_bytes(gzip.compress(TRACE))
    text, stream = drained(path)
    assert (text, stream.name) == (TRACE, str(path))
    assert drained(path, "mine")[1].name == "mine"


def _tar(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("trace.json")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def _encrypted() -> bytes:
    packed = bytearray(_zip(TRACE))
    packed[6] |= 1
    packed[packed.rindex(b"PK\x01\x02") + 8] |= 1
    return bytes(packed)


EMPTY = "t.json is empty: record the trace again, or get the file again"
PICKLE = "t.json is a Python pickle, not a profiler trace: give a trace written by torch.profiler (.json or .json.gz)"
PACKED = "not a profiler trace: unpack it and give the .json or .json.gz inside"
TAR = "t.json is a tar archive, not a profiler trace: unpack it and give the traces inside"
ZIP = "unpack it, and give the trace inside, or the folder"
FOREIGN: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", EMPTY),
    "blanks": (b" \n\t", EMPTY),
    "byte_order_mark_alone": (b"\xef\xbb\xbf\n", EMPTY),
    "gzip_of_nothing": (gzip.compress(b""), EMPTY),
    "zip_of_blanks": (_zip(b"  "), EMPTY),
    "zip_of_nothing": (b"PK\x05\x06" + bytes(18), f"t.json is a ZIP archive of no file, not of one trace: {ZIP}"),
    "zip_of_folders": (_zip(b"", "run/"), f"t.json is a ZIP archive of no file, not of one trace: {ZIP}"),
    "zip_of_two": (
        _zip(TRACE, "b.json.gz", others={"a.json": TRACE}),
        f"t.json is a ZIP archive of 2 files (a.json, b.json.gz), not of one trace: {ZIP}",
    ),
    "cut_bundle": (
        _zip(bytes(5000), "tables/op.parquet", zipfile.ZIP_STORED)[:2000],
        "t.json is a tracekit bundle that is damaged or cut short: get the file again",
    ),
    "zip_of_three": (
        _zip(TRACE, "\x1b[2J.json", others={"a.json": TRACE, "b.json": TRACE}),
        f"t.json is a ZIP archive of 3 files (a.json, b.json, ...), not of one trace: {ZIP}",
    ),
    "zip_encrypted": (_encrypted(), f"t.json: trace.json inside is encrypted: {ZIP}"),
    "zip_of_bzip2": (
        _zip(TRACE, "\x1b[2J.json", zipfile.ZIP_BZIP2),
        f"t.json: ?[2J.json inside is packed in a rare way (ZIP method 12): {ZIP}",
    ),
    "bundle": (
        _zip(b"{}", "manifest.json", others={"tables/op.parquet": b""}),
        "t.json is a tracekit bundle, not a trace: query it as it is",
    ),
    "gzip_of_zip": (gzip.compress(_zip(TRACE)), f"t.json is a ZIP archive, {PACKED}"),
    "zip_of_zip": (_zip(_zip(TRACE)), f"t.json is a ZIP archive, {PACKED}"),
    "gzip_thrice": (
        gzip.compress(gzip.compress(gzip.compress(TRACE))),
        "t.json is packed more than 2 times: unpack it and give the .json or .json.gz inside",
    ),
    "bzip2": (bz2.compress(TRACE), f"t.json is a bzip2 archive, {PACKED}"),
    "xz": (lzma.compress(TRACE), f"t.json is an xz archive, {PACKED}"),
    "tar": (_tar(TRACE), TAR),
    "tar_gz": (gzip.compress(_tar(TRACE)), TAR),
    **{f"pickle_{protocol}": (pickle.dumps({"segments": []}, protocol), PICKLE) for protocol in (2, 3, 4, 5)},
    "gzip_of_pickle": (gzip.compress(pickle.dumps({"segments": []})), PICKLE),
    **{
        name: (TRACE.decode().encode(name), "t.json is UTF-16 text, not a profiler trace: save it as UTF-8")
        for name in ("utf-16", "utf-16-le", "utf-16-be")
    },
    "zstd_of_too_wide_a_window": (
        b"\x28\xb5\x2f\xfd\x00\xa8" + b"\x01\x00\x00",
        "t.json: its zstd data needs more than 128 MiB of memory: unpack it with `zstd -d --long=31`",
    ),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_is_no_trace_is_named_with_what_to_give_instead(kind: str) -> None:
    data, expected = FOREIGN[kind]
    assert refused(data, "t.json") == expected


def _text_by_zlib(packed: bytes) -> bytes:
    """Return what zlib gives when it is fed byte by byte, so that no fault takes anything with it."""
    text: list[bytes] = []
    decoder = zlib.decompressobj(31)
    with suppress(zlib.error):
        text.extend(decoder.decompress(packed[place : place + 1]) for place in range(len(packed)))
    return b"".join(text)


PACKED_LONG = gzip.compress(LONG, 6)


@pytest.mark.parametrize("frac", [0.005, 0.01, 0.3, 0.5, 0.77, 0.999])
def test_a_gzip_that_is_cut_off_gives_all_that_zlib_would(frac: float) -> None:
    cut = PACKED_LONG[: int(frac * len(PACKED_LONG))]
    text, stream = drained(cut, "t.gz")
    assert text == _text_by_zlib(cut) != b""
    assert stream.damage == f"its gzip data ends too early, after {len(text):,} bytes of text"
    assert stream.sha256 == hashlib.sha256(cut).hexdigest()


PACKED_PART = gzip.compress(LONG[:200_000])


@settings(max_examples=40)
@given(st.integers(3000, len(PACKED_PART) - 1), st.integers(1, 255))
def test_a_gzip_with_a_wrong_byte_gives_all_that_zlib_would(place: int, difference: int) -> None:
    hurt = bytearray(PACKED_PART)
    hurt[place] ^= difference
    text, stream = drained(bytes(hurt), "t.gz")
    assert text == _text_by_zlib(bytes(hurt))
    assert stream.damage is not None
    assert stream.damage.endswith(f" after {len(text):,} bytes of text")


def test_a_wrong_checksum_costs_no_text() -> None:
    hurt = bytearray(PACKED_LONG)
    hurt[-6] ^= 1
    text, stream = drained(bytes(hurt), "t.gz")
    assert text == LONG
    assert stream.damage == f"its gzip data is damaged after {len(LONG):,} bytes of text"


def test_what_comes_before_a_damaged_member_is_kept() -> None:
    hurt = bytearray(PACKED_LONG)
    hurt[-100_000] ^= 255
    text, stream = drained(gzip.compress(b"x" * 3_000_000) + hurt, "t.gz")
    assert text == b"x" * 3_000_000 + _text_by_zlib(bytes(hurt))
    assert len(text) > 3_000_000 + len(LONG) // 3
    assert stream.damage == f"its gzip data is damaged after {len(text):,} bytes of text"


def test_damage_in_the_outer_of_two_layers_keeps_what_the_inner_gives() -> None:
    text, stream = drained(gzip.compress(PACKED_LONG)[: len(PACKED_LONG) // 2], "t.gz")
    assert LONG.startswith(text)
    assert len(text) > len(LONG) // 3
    assert stream.damage is not None
    assert stream.damage.startswith("its gzip data ends too early, after")


@pytest.mark.parametrize(
    ("tail", "damage"),
    [
        (bytes(700_000), "700,000 bytes, all zero, after the end of its gzip data are ignored"),
        (b"\0\0rubbish", "9 bytes after the end of its gzip data are ignored"),
        (b"\x1f", "1 bytes after the end of its gzip data are ignored"),
        (b"\x1f\x8brubbish", f"its gzip data is damaged after {len(TRACE)} bytes of text"),
        (b"\x1f\x8b\x08\x00", f"its gzip data ends too early, after {len(TRACE)} bytes of text"),
    ],
)
def test_what_follows_the_last_member_is_no_text_and_is_told(tail: bytes, damage: str) -> None:
    packed = gzip.compress(TRACE) + tail
    text, stream = drained(packed)
    assert (text, stream.damage) == (TRACE, damage)
    assert stream.sha256 == hashlib.sha256(packed).hexdigest()


def test_a_zstd_that_is_cut_off_or_damaged_gives_the_blocks_before() -> None:
    packed = b"".join(zstd.compress(LONG[start : start + 100_000]) for start in range(0, len(LONG), 100_000))
    middle = packed.index(b"\x28\xb5\x2f\xfd", len(packed) // 2)
    text, stream = drained(packed[: middle + 9])
    assert LONG.startswith(text)
    assert len(text) % 100_000 == 0
    assert len(text) > len(LONG) // 3
    assert stream.damage == f"its zstd data ends too early, after {len(text):,} bytes of text"
    again, stream = drained(packed[: middle + 4] + b"\xff" * 100 + packed[middle + 104 :])
    assert again == text
    assert stream.damage == f"its zstd data is damaged after {len(text):,} bytes of text"
    assert drained(zstd.compress(TRACE) + b"rest")[1].damage == "4 bytes after the end of its zstd data are ignored"


@pytest.mark.parametrize("kind", ["zip", "zip_stored", "zip_streamed", "zip_of_zstd", "zip_of_gzip", "zip_by_macos"])
def test_a_zip_that_is_cut_off_gives_the_text_before(kind: str) -> None:
    packed = WRAPPINGS[kind](LONG)
    text, stream = drained(packed[: len(packed) // 2])
    assert LONG.startswith(text)
    assert len(text) > len(LONG) // 3
    assert stream.damage is not None
    assert " ends too early, after " in stream.damage
    text, stream = drained(packed[:-30])
    assert (text, stream.damage) == (LONG, "its ZIP archive is cut off: it has no directory")


def test_a_zip_that_holds_more_than_a_trace_gives_the_trace() -> None:
    packed = _zip(LONG, "run/trace.JSON", others={"README.txt": b"How it was recorded.", "run/loss.csv": b"1,2"})
    text, stream = drained(packed)
    assert (text, stream.damage) == (LONG, None)


def test_a_zip_whose_data_was_changed_says_so() -> None:
    packed = bytearray(_zip(LONG, method=zipfile.ZIP_STORED))
    packed[5000] ^= 1
    text, stream = drained(bytes(packed))
    assert len(text) == len(LONG)
    assert stream.damage == "its ZIP data has another checksum than it was packed with"
    packed = bytearray(_zip(LONG))
    packed[len(packed) // 2] ^= 255
    text, stream = drained(bytes(packed))
    assert text.startswith(LONG[: len(LONG) // 3])
    assert stream.damage is not None


@given(
    st.sampled_from(sorted(WRAPPINGS)),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=5),
    st.integers(0, 400),
)
def test_no_file_however_damaged_is_more_than_a_fault_in_one_line(
    wrapping: str, changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(WRAPPINGS[wrapping](TRACE))
    for place, value in changes:
        data[place % len(data)] = value
    said = ""
    try:
        drained(bytes(data[: len(data) - cut % len(data)]), "t")
    except TracekitError as error:
        said = str(error)
    assert said == "" or said.startswith(("t ", "t: "))
    assert said.isprintable()


def test_nothing_but_damage_is_a_fault() -> None:
    assert refused(gzip.compress(TRACE)[:8], "t.gz") == snapshot(
        "t.gz: its gzip data ends too early, after 0 bytes of text: get the file again"
    )
    assert refused(b"PK\x03\x04", "t.zip") == snapshot(
        "t.zip: its ZIP archive is cut off or damaged: get the file again"
    )


@pytest.mark.parametrize("length", [3, 12, -9, -1])
def test_a_gzip_that_is_cut_off_is_said_to_be(length: int) -> None:
    packed = gzip.compress(TRACE)[:length]
    said = refused(packed, "t.gz") if length == 3 else drained(packed, "t.gz")[1].damage
    assert re.fullmatch(
        r"(t\.gz: )?its gzip data ends too early, after [0-9]+ bytes of text(: get the file again)?", said
    )


BOMBS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "gzip_twice": lambda data: gzip.compress(gzip.compress(data)),
    "zstd": zstd.compress,
    "zip": _zip,
    "nothing_but_skipped": lambda data: gzip.compress(SKIPPED[:4] + struct.pack("<I", len(data)) + data),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_an_archive_that_unpacks_to_far_more_than_traces_do_is_refused_unless_trusted(kind: str) -> None:
    bomb = BOMBS[kind](b"[" + b" " * 40_000_000)
    count = 0

    def read_all() -> None:
        nonlocal count
        with opened(bomb, "b") as stream:
            for block in stream.blocks(2**20):
                count += len(block)

    with pytest.raises(TracekitError) as caught:
        read_all()
    assert str(caught.value) == (
        "b unpacks to more than 16,777,216 bytes, far more than traces do: "
        "if you trust where it comes from, give --trust-archive"
    )
    assert count <= 2**24
    if kind != "nothing_but_skipped":
        with opened(bomb, "b", trust_archive=True) as stream:
            assert sum(map(len, stream.blocks())) == 40_000_001


def test_a_text_of_ordinary_size_is_no_bomb_however_well_it_is_packed() -> None:
    text = b"[" + b" " * (2**24 - 1)
    assert drained(gzip.compress(text))[0] == text


def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    peaks = []
    for copies in (20, 60):
        path = tmp_path / f"{copies}.gz"
        path.write_bytes(PACKED_LONG * copies)
        tracemalloc.start()
        with opened(path) as stream:
            assert sum(map(len, stream.blocks(2**20))) == copies * len(LONG)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2**24
    assert peaks[1] < 1.2 * peaks[0]


def test_a_path_that_can_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = tmp_path.relative_to(tmp_path)
    (here / "folder.json").mkdir()
    (here / "file.json").write_bytes(TRACE)
    (here / "loop.json").symlink_to("loop.json")
    (here / "dangling.json").symlink_to("nowhere")
    messages = {}
    for name in ("missing.json", "folder.json", "file.json/x", "loop.json", "dangling.json", "nul\0.json", "x" * 300):
        said = refused(here / name)
        messages[name[:24]] = said.replace("x" * 300, "xxx")
    assert messages == snapshot(
        {
            "missing.json": "missing.json: no such file: check the path",
            "folder.json": "folder.json is a folder: give one trace file or bundle",
            "file.json/x": "file.json/x can't be read (Not a directory): check the path and its rights",
            "loop.json": "loop.json can't be read (Too many levels of symbolic links): check the path and its rights",
            "dangling.json": "dangling.json: no such file: check the path",
            "nul\x00.json": "'nul\\x00.json' is no path (embedded null byte): check the path",
            "xxxxxxxxxxxxxxxxxxxxxxxx": "xxx can't be read (File name too long): check the path and its rights",
        }
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
def test_what_would_block_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    server = socket.socket(socket.AF_UNIX)
    server.bind("socket")
    said = [refused(Path(name)) for name in ("pipe", "socket", "/dev/zero", "/dev/tty")]
    server.close()
    assert said == snapshot(
        [
            "pipe is a pipe, not a file: give a file",
            "socket is a socket, not a file: give a file",
            "/dev/zero is a device, not a file: give a file",
            "/dev/tty is a device, not a file: give a file",
        ]
    )


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="rights are others here")
def test_a_file_without_the_right_to_read_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(TRACE)
    path.chmod(0)
    tmp_path.chmod(0o755)
    become_nobody = "os.setuid(65534); " if os.geteuid() == 0 else ""
    code = (
        "import os; from pathlib import Path; from tracekit.ingest.container import opened; "
        f"os.chdir({str(tmp_path)!r}); {become_nobody}opened(Path('t.json')).__enter__()"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert "t.json can't be read (Permission denied): check the path and its rights" in said


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that fails when it is read")
def test_a_read_that_fails_is_told_in_the_system_s_words() -> None:
    assert refused(Path("/proc/self/mem")) == snapshot(
        "/proc/self/mem can't be read (Input/output error): check the disk it lies on"
    )


CHANGES: dict[str, Callable[[Path], object]] = {
    "grows": lambda path: os.truncate(path, path.stat().st_size + 1),
    "shrinks": lambda path: os.truncate(path, 3_000_000),
    "is_written_anew": lambda path: os.utime(path, (1, 1)),
    "is_replaced": lambda path: path.with_name("other").replace(path),
    "vanishes": lambda path: path.unlink(),
}


@pytest.mark.skipif(sys.platform == "win32", reason="an open file can't be replaced there")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("wrapping", ["bare", "gzip"])
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, change: str, wrapping: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(WRAPPINGS[wrapping](LONG * 4))
    path.with_name("other").write_bytes(path.read_bytes())

    def read_all() -> None:
        with opened(path, "t.json") as stream:
            for number, _ in enumerate(stream.blocks(2**20)):
                if number == 0:
                    CHANGES[change](path)

    with pytest.raises(TracekitError) as caught:
        read_all()
    assert str(caught.value) == "t.json changed while it was read: try again when it is complete"


def test_a_file_that_never_stops_growing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(LONG)

    def read_all() -> None:
        with path.open("ab", buffering=0) as growing, opened(path) as stream:
            for block in stream.blocks(2**18):
                growing.write(block)

    with pytest.raises(TracekitError, match="changed while it was read"):
        read_all()


def test_a_stream_that_is_left_early_leaves_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    for _ in range(5):
        with opened(LONG) as stream:
            next(stream.blocks(2**18))
    assert threading.active_count() == before


def test_the_real_traces_come_out_as_gzip_gives_them(traces: Path) -> None:
    started = time.monotonic()
    for path in sorted(traces.glob("*.json.gz")):
        text, stream = drained(path)
        assert text == gzip.decompress(path.read_bytes())
        assert stream.damage is None
        assert stream.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        if time.monotonic() - started > 2:
            break
