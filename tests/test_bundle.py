"""The `.tkb` file: what is written is what is read, and nothing damaged or hostile passes for it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from tracekit import bundle
from tracekit.bundle import Bundle
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

CONTENT = {
    "calls.json": b"[]",
    "raw/rank0.json.gz": bytes(range(256)),
    "snapshot/rank0.pickle": b"",
    "tables/kernel.parquet": b"PAR1" + b"\0" * 60 + b"PAR1",
}
FACTS = {"seed": 7, "lengths": [3, 1, 2], "note": "≤ 1"}
ROOT = Path(bundle.__file__).parents[1]


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let messages name files as `run.tkb`, whatever the folder."""
    monkeypatch.chdir(tmp_path)


def write(path: Path, entries: Mapping[str, bytes | Path] = CONTENT, *, overwrite: bool = False) -> Path:
    bundle.write(path, entries, facts=FACTS, tool_version="0.1.0", overwrite=overwrite)
    return path


def manifest_of(entries: Mapping[str, bytes], /, **changes: object) -> bytes:
    """Return a manifest that is right about `entries` but for `changes`."""
    lines = {n: {"bytes": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in entries.items()}
    right = {"format_version": 1, "schema_version": 1, "tool": "tracekit", "tool_version": "0.1.0"}
    return json.dumps({**right, "left_out": {}, "entries": lines, **changes}).encode()


def pack(path: Path, *entries: tuple[str | zipfile.ZipInfo, bytes], method: int = 0, **changes: object) -> Path:
    """Pack a ZIP by another tool's hand, with a manifest that lists its entries unless one is among them."""
    contents = {entry if isinstance(entry, str) else entry.filename: data for entry, data in entries}
    if "manifest.json" not in contents:
        entries = (*entries, ("manifest.json", manifest_of(contents, **changes)))
    with zipfile.ZipFile(path, "w", method) as archive:
        for entry, data in entries:
            archive.writestr(entry, data)
    return path


def refusal(do: Callable[[Path], object], path: Path) -> str:
    with pytest.raises(TracekitError) as caught:
        do(path)
    return str(caught.value)


def problem_of(path: Path) -> str:
    """Return what is wrong with a file that `open` and `verify` both refuse, without the remedy."""
    with pytest.raises(TracekitError) as caught:
        Bundle.open(path)
    assert refusal(bundle.verify, path) == str(caught.value)
    return caught.value.problem


# Round trips


def test_what_is_written_is_read() -> None:
    opened = Bundle.open(write(Path("run.tkb")))
    assert {name: opened.read(name) for name in opened.names()} == {
        **CONTENT,
        "facts.json": opened.read("facts.json"),
    }
    assert opened.facts == FACTS
    assert opened.names("tables/") == ["tables/kernel.parquet"]
    assert opened.size("raw/rank0.json.gz") == 256
    assert all(check.ok for check in bundle.verify(Path("run.tkb")))
    assert [check.name for check in bundle.verify(Path("run.tkb"))] == opened.names()


def test_any_zip_tool_reads_it_and_nothing_is_compressed() -> None:
    with zipfile.ZipFile(write(Path("run.tkb"))) as archive:
        assert archive.testzip() is None
        assert {(info.compress_type, info.create_system) for info in archive.infolist()} == {(zipfile.ZIP_STORED, 3)}
        assert archive.namelist()[-1] == "manifest.json"
        assert stat.S_IMODE(archive.infolist()[0].external_attr >> 16) == 0o644


def test_manifest_says_who_wrote_what() -> None:
    bundle.write(Path("run.tkb"), {"calls.json": b"[]"}, left_out={"raw": "--keep-raw"}, tool_version="0.1.0")
    assert Bundle.open(Path("run.tkb")).facts == {}
    with zipfile.ZipFile("run.tkb") as archive:
        assert json.loads(archive.read("manifest.json")) == snapshot(
            {
                "entries": {
                    "calls.json": {
                        "bytes": 2,
                        "sha256": "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945",
                    }
                },
                "format_version": 1,
                "left_out": {"raw": "--keep-raw"},
                "schema_version": 1,
                "tool": "tracekit",
                "tool_version": "0.1.0",
            }
        )
    assert Bundle.open(Path("run.tkb")).manifest.left_out == {"raw": "--keep-raw"}


def test_large_files_are_copied_and_read_in_pieces() -> None:
    Path("trace").write_bytes(os.urandom(2_500_000))
    opened = Bundle.open(write(Path("run.tkb"), {"raw/trace.json.gz": Path("trace")}))
    pieces = list(opened.pieces("raw/trace.json.gz"))
    assert b"".join(pieces) == Path("trace").read_bytes()
    assert max(map(len, pieces)) <= 2**20


def test_equal_input_gives_equal_bytes() -> None:
    Path("trace").write_bytes(CONTENT["raw/rank0.json.gz"])
    os.utime("trace", (0, 0))
    other = dict(reversed(CONTENT.items())) | {"raw/rank0.json.gz": Path("trace")}
    assert write(Path("a.tkb")).read_bytes() == write(Path("b.tkb"), other).read_bytes()


def test_every_entry_that_can_be_written_can_be_read() -> None:
    name = "raw/" + "é" * 98
    assert Bundle.open(write(Path("run.tkb"), {name: b"x"})).read(name) == b"x"


def test_bundle_repacked_by_another_tool_is_read() -> None:
    entries = [("raw/", b""), *CONTENT.items()]
    contents = manifest_of(CONTENT)
    path = pack(Path("run.tkb"), *entries, ("manifest.json", contents), method=zipfile.ZIP_DEFLATED)
    opened = Bundle.open(path)
    assert {name: opened.read(name) for name in opened.names()} == CONTENT
    assert all(check.ok for check in bundle.verify(path))


# Writing safely


def test_existing_file_is_kept_unless_overwritten() -> None:
    Path("run.tkb").write_text("mine")
    assert refusal(write, Path("run.tkb")) == snapshot(
        "run.tkb can't be written (File exists): choose another name, or overwrite it with --force"
    )
    assert Path("run.tkb").read_text() == "mine"
    write(Path("run.tkb"), overwrite=True)
    assert Bundle.open(Path("run.tkb")).facts == FACTS


def test_existing_file_is_refused_before_any_source_is_read() -> None:
    Path("run.tkb").write_text("mine")
    with pytest.raises(TracekitError, match=r"run\.tkb can't be written \(File exists\)"):
        write(Path("run.tkb"), {"raw/absent.json.gz": Path("absent")})


def test_overwriting_a_link_replaces_what_it_points_to() -> None:
    write(Path("run-1.tkb"), {})
    Path("latest.tkb").symlink_to("run-1.tkb")
    write(Path("latest.tkb"), overwrite=True)
    assert Path("latest.tkb").is_symlink()
    assert Bundle.open(Path("run-1.tkb")).names("raw/")


@pytest.mark.parametrize("overwrite", [False, True])
def test_devices_and_folders_are_never_replaced(*, overwrite: bool) -> None:
    Path("folder.tkb").mkdir()
    os.mkfifo("pipe.tkb")
    for path in (Path("folder.tkb"), Path("pipe.tkb")):
        assert "not a file" in refusal(lambda path: write(path, overwrite=overwrite), path)
    assert stat.S_ISFIFO(Path("pipe.tkb").stat().st_mode)


@pytest.mark.parametrize("name", ["", "x", "raw", "raw/", "raw/../x", "/raw/x", "raw//x", "raw\\x", "manifest.json"])
def test_name_that_no_entry_may_have_is_not_written(name: str) -> None:
    with pytest.raises(ValueError, match="may not hold"):
        write(Path("run.tkb"), {name: b""})
    assert not Path("run.tkb").exists()


def test_facts_cannot_be_given_twice() -> None:
    with pytest.raises(ValueError, match="may not hold"):
        write(Path("run.tkb"), {"facts.json": b"{}"})


def test_facts_that_json_cannot_hold_are_not_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        bundle.write(Path("run.tkb"), {}, facts={"loss": float("nan")}, tool_version="0.1.0")


def test_missing_folder_and_missing_source_are_named() -> None:
    assert refusal(write, Path("no/run.tkb")) == snapshot(
        "no/run.tkb can't be written (No such file or directory): check the path, and that its folder exists"
    )
    missing = {"raw/a.json.gz": Path("absent.json.gz")}
    assert refusal(lambda path: write(path, missing), Path("run.tkb")) == snapshot(
        "absent.json.gz can't be read (No such file or directory): check the path, and that its folder exists"
    )
    Path("file").touch()
    assert refusal(write, Path("file/run.tkb")) == snapshot(
        "file/run.tkb can't be written (Not a directory): check the path, and that its folder exists"
    )
    assert refusal(write, Path("x" * 300)).partition("(")[2] == snapshot("File name too long)")
    assert [path.name for path in Path().iterdir()] == ["file"]


@contextmanager
def without_privileges() -> Iterator[None]:
    """Be somebody whom permissions stop, even where root runs the tests."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_read_only_folder_is_named() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        with without_privileges():
            message = refusal(write, Path(folder, "run.tkb"))
        Path(folder).chmod(0o755)
    assert message.removeprefix(folder) == snapshot(
        "/run.tkb can't be written (Permission denied): choose another place, or allow it there"
    )


def test_file_that_outgrows_the_disk_is_named_and_leaves_nothing() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    Path("run.tkb").write_text("mine")
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        big = {"raw/a.json.gz": bytes(3_000_000)}
        message = refusal(lambda path: write(path, big, overwrite=True), Path("run.tkb"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert message == snapshot("run.tkb can't be written (File too large): make room, or choose another disk")
    assert {path.name: path.read_text() for path in Path().iterdir()} == {"run.tkb": "mine"}


WRITE_FOR_LONG = """
import signal
from pathlib import Path
from tracekit import bundle
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background would ignore it
bundle.write(Path("run.tkb"), {"raw/a.json.gz": Path("big")}, tool_version="0.1.0", overwrite=True)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_writer_that_is_ended_leaves_the_old_file(end: signal.Signals) -> None:
    before = write(Path("run.tkb")).read_bytes()
    with Path("big").open("wb") as big:
        big.truncate(2**30)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITE_FOR_LONG],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )
    while not any(path.stat().st_size > 2**22 for path in Path().glob(".run.tkb.tmp-*")):
        assert writer.poll() is None
        time.sleep(0.005)
    writer.send_signal(end)
    assert writer.wait() == -end
    assert Path("run.tkb").read_bytes() == before
    if end == signal.SIGINT:
        assert {path.name for path in Path().iterdir()} == {"run.tkb", "big"}


def test_source_that_grows_while_it_is_copied_is_refused() -> None:
    source, done = Path("growing"), threading.Event()
    source.write_bytes(bytes(30_000_000))

    def grow() -> None:
        with source.open("ab", buffering=0) as file:
            while not done.is_set():
                file.write(b"x")

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        message = refusal(lambda path: write(path, {"raw/a.json.gz": source}), Path("run.tkb"))
    finally:
        done.set()
        thread.join()
    assert message == snapshot("growing changed while it was copied: try again when it is complete")
    assert not Path("run.tkb").exists()


def refuse_links(self: Path, target: Path) -> None:
    """Answer as a FAT or SMB file system does."""
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize("has_links", [True, False])
def test_of_writers_to_one_new_path_exactly_one_wins(*, has_links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_links:
        monkeypatch.setattr(Path, "hardlink_to", refuse_links)
    start = threading.Barrier(4)

    def wins(path: Path, number: int) -> bool:
        start.wait()
        with suppress(TracekitError):
            write(path, {"raw/a.json.gz": bytes([number]) * 200_000})
            return True
        return False

    with ThreadPoolExecutor(4) as pool:
        for path in [Path(f"run-{turn}.tkb") for turn in range(10)]:
            winners = [number for number, won in enumerate(pool.map(wins, [path] * 4, range(4))) if won]
            assert [Bundle.open(path).read("raw/a.json.gz")[0]] == winners
    assert not list(Path().glob(".*"))


@pytest.mark.parametrize("has_links", [True, False])
def test_file_that_appears_meanwhile_is_kept(*, has_links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_links:
        monkeypatch.setattr(Path, "hardlink_to", refuse_links)
    Path("temporary").write_text("ours")
    Path("run.tkb").write_text("theirs")
    with pytest.raises(FileExistsError):
        bundle._rename_to_new(Path("temporary"), Path("run.tkb"))
    assert Path("run.tkb").read_text() == "theirs"


def test_name_is_not_left_claimed_where_there_are_no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "hardlink_to", refuse_links)
    with pytest.raises(FileNotFoundError):
        bundle._rename_to_new(Path("absent"), Path("run.tkb"))
    assert not Path("run.tkb").exists()


# Damage


def small_bundle(method: int) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        contents = {**CONTENT, "facts.json": json.dumps(FACTS).encode()}
        return pack(Path(folder, "run.tkb"), *contents.items(), method=method).read_bytes()


SMALL = [small_bundle(zipfile.ZIP_STORED), small_bundle(zipfile.ZIP_DEFLATED)]


def check_never_wrong(data: bytes) -> None:
    """Assert that every byte that can be had from `data` is original, and that whatever else is reported."""
    path = Path("flipped.tkb")
    path.write_bytes(data)
    with suppress(TracekitError):
        opened = Bundle.open(path)
        assert set(opened.names()) == {*CONTENT, "facts.json"}
        for name, original in CONTENT.items():
            with suppress(TracekitError):
                assert opened.read(name) == original
        assert opened.facts == FACTS
    with suppress(TracekitError):
        sound = {check.name: check.sha256 for check in bundle.verify(path) if check.ok}
        assert all(sound[name] == hashlib.sha256(CONTENT[name]).hexdigest() for name in CONTENT if name in sound)
        if len(sound) == len(CONTENT) + 1:
            assert Bundle.open(path).facts == FACTS
    bundle.is_bundle(path)


@given(st.sampled_from(SMALL), st.data(), st.integers(1, 255))
@settings(max_examples=500, deadline=None)
def test_flipped_bits_never_give_wrong_bytes(original: bytes, data: st.DataObject, flip: int) -> None:
    position = data.draw(st.integers(0, len(original) - 1))
    check_never_wrong(original[:position] + bytes([original[position] ^ flip]) + original[position + 1 :])


@given(st.sampled_from(SMALL), st.data())
@settings(max_examples=200, deadline=None)
def test_cut_file_is_refused(original: bytes, data: st.DataObject) -> None:
    path = Path("cut.tkb")
    path.write_bytes(original[: data.draw(st.integers(0, len(original) - 1))])
    for do in (Bundle.open, bundle.verify):
        assert "cut.tkb is" in refusal(do, path)
    assert not bundle.is_bundle(path)


@given(st.binary(max_size=200), st.sampled_from([b"", b"PK\x03\x04", SMALL[0][:300]]), st.binary(max_size=60))
@settings(deadline=None)
def test_random_bytes_are_refused(noise: bytes, start: bytes, end: bytes) -> None:
    path = Path("noise.tkb")
    path.write_bytes(start + noise + b"PK\x05\x06" + end)
    refusal(Bundle.open, path)
    assert not bundle.is_bundle(path)


def test_damaged_entries_are_all_named_by_verify() -> None:
    data = bytearray(write(Path("run.tkb")).read_bytes())
    for content in (CONTENT["raw/rank0.json.gz"], CONTENT["tables/kernel.parquet"]):
        data[data.index(content) + 5] ^= 1
    Path("run.tkb").write_bytes(data)
    problems = {check.name: check.problem for check in bundle.verify(Path("run.tkb")) if not check.ok}
    assert problems == snapshot({"raw/rank0.json.gz": "is damaged", "tables/kernel.parquet": "is damaged"})
    opened = Bundle.open(Path("run.tkb"))
    assert refusal(lambda _: opened.read("raw/rank0.json.gz"), opened.path) == snapshot(
        "run.tkb: entry 'raw/rank0.json.gz' is damaged: get the file again, from a source you trust"
    )
    assert opened.read("calls.json") == b"[]"


def test_entry_that_other_tools_would_not_find_is_damaged() -> None:
    data = bytearray(write(Path("run.tkb")).read_bytes())
    data[data.index(b"raw/rank0.json.gz") - 30] ^= 1
    Path("run.tkb").write_bytes(data)
    assert [check.name for check in bundle.verify(Path("run.tkb")) if not check.ok] == ["raw/rank0.json.gz"]


def test_entry_that_unpacks_to_less_than_it_declares_is_damaged() -> None:
    calls = b"[]  " * 9
    line = {"bytes": len(calls) + 1, "sha256": hashlib.sha256(calls).hexdigest()}
    manifest = manifest_of({}, entries={"calls.json": line})
    path = pack(Path("run.tkb"), ("calls.json", calls), ("manifest.json", manifest), method=zipfile.ZIP_DEFLATED)
    opened = Bundle.open(patched(path, "calls.json", 24, bytes([len(calls) + 1])))
    assert "is damaged" in refusal(lambda _: opened.read("calls.json"), path)


def test_entry_whose_content_was_exchanged_is_named_by_verify() -> None:
    listed = manifest_of({"calls.json": b"[1]"})
    path = pack(Path("run.tkb"), ("calls.json", b"[2]"), ("manifest.json", listed))
    assert [check.problem for check in bundle.verify(path)] == snapshot(["has other content than the manifest says"])


def test_entries_and_manifest_that_disagree_are_named() -> None:
    listed = manifest_of({"calls.json": b"[]", "raw/gone.json.gz": b"x", "raw/size.json.gz": b"xx"})
    entries = [("raw/size.json.gz", b"x"), ("raw/extra.json.gz", b"x"), ("calls.json", b"[]")]
    path = pack(Path("run.tkb"), *entries, ("manifest.json", listed))
    assert {check.name: check.problem for check in bundle.verify(path)} == snapshot(
        {
            "calls.json": "",
            "raw/extra.json.gz": "is not listed in the manifest",
            "raw/gone.json.gz": "is missing",
            "raw/size.json.gz": "has another size than the manifest says",
        }
    )
    with pytest.raises(TracekitError, match=r"entry 'raw/extra.json.gz' is not listed in the manifest"):
        Bundle.open(path)


@pytest.mark.parametrize("text", [b"{", b"[1]", b"\xff", b"[" * 100_000, b'{"a": ' + b"1" * 5000 + b"}"])
def test_facts_that_are_no_json_object_are_named(text: bytes) -> None:
    opened = Bundle.open(pack(Path("run.tkb"), ("facts.json", text)))
    with pytest.raises(TracekitError, match=r"entry 'facts.json' is not a JSON object"):
        _ = opened.facts


def test_facts_that_would_fill_the_memory_are_refused() -> None:
    opened = Bundle.open(pack(Path("run.tkb"), ("facts.json", b"{}" + b" " * 2**26)))
    with pytest.raises(TracekitError, match="up to 64 MiB"):
        _ = opened.facts


def test_entry_that_is_not_there_is_named() -> None:
    opened = Bundle.open(write(Path("run.tkb")))
    assert refusal(lambda _: opened.read("raw/x"), opened.path) == snapshot(
        "run.tkb has no entry 'raw/x': see `tracekit bundle info`"
    )


def test_bundle_that_vanishes_after_opening_is_named() -> None:
    opened = Bundle.open(write(Path("run.tkb")))
    opened.path.unlink()
    assert refusal(lambda _: opened.read("calls.json"), opened.path) == snapshot(
        "run.tkb can't be read (No such file or directory): check the path, and that its folder exists"
    )


# What is no bundle, too new or hostile


def test_what_is_no_bundle_is_refused_in_one_line() -> None:
    Path("empty.tkb").touch()
    Path("text.tkb").write_text("hello")
    Path("folder.tkb").mkdir()
    os.mkfifo("pipe.tkb")
    pack(Path("trace.tkb"), ("trace.json", b"{}"), ("manifest.json", b"{}"))
    with zipfile.ZipFile("plain.tkb", "w") as archive:
        archive.writestr("trace.json", b"{}")
    pack(Path("broken.tkb"), ("manifest.json", b"{"))
    Path("cut.tkb").write_bytes(SMALL[0][:-1])
    names = ["absent", "empty", "text", "folder", "pipe", "trace", "plain", "broken", "cut"]
    paths = [Path(f"{name}.tkb") for name in names]
    assert [problem_of(path) for path in paths] == snapshot(
        [
            "absent.tkb can't be read (No such file or directory)",
            "empty.tkb is not a tracekit bundle",
            "text.tkb is not a tracekit bundle",
            "folder.tkb can't be read (not a file)",
            "pipe.tkb can't be read (not a file)",
            "trace.tkb is not a tracekit bundle",
            "plain.tkb is not a tracekit bundle",
            "broken.tkb: entry 'manifest.json' is not a JSON object of up to 64 MiB",
            "cut.tkb is damaged or cut short",
        ]
    )
    assert not any(map(bundle.is_bundle, paths))


def test_newer_versions_are_refused_with_what_to_install() -> None:
    newer = pack(Path("run.tkb"), ("parts/x", b""), format_version=2, tool_version="9.1", entries=[])
    assert problem_of(newer) == snapshot("run.tkb was written by tracekit '9.1' in a newer format than this one reads")
    assert "install tracekit '9.1' or newer" in refusal(Bundle.open, newer)
    assert bundle.is_bundle(newer)
    assert "install" in refusal(Bundle.open, pack(Path("run.tkb"), schema_version=2))


def test_older_versions_are_read() -> None:
    assert Bundle.open(pack(Path("run.tkb"), schema_version=0)).manifest.schema_version == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"format_version": "1"},
        {"schema_version": True},
        {"tool_version": None},
        {"entries": []},
        {"entries": {"calls.json": 2}},
        {"entries": {"calls.json": {"bytes": "2", "sha256": ""}}},
        {"left_out": None},
    ],
)
def test_malformed_manifest_is_named(changes: dict[str, Any]) -> None:
    path = pack(Path("run.tkb"), ("calls.json", b"[]"), **changes)
    assert "entry 'manifest.json' has no valid" in refusal(Bundle.open, path)


UNSAFE = [
    "../evil",
    "/etc/passwd",
    "raw/../../evil",
    "C:evil",
    "C:/evil",
    "raw//x",
    "raw/./x",
    "raw/x\\..\\y",
    "raw/\x1b[0m",
]


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_names_are_refused(name: str) -> None:
    assert problem_of(pack(Path("run.tkb"), (name, b""))) == f"run.tkb: entry {name!r} has an unsafe name"


def entry(name: str, **attributes: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    for attribute, value in attributes.items():
        setattr(info, attribute, value)
    return info


def patched(path: Path, name: str, offset: int, value: bytes) -> Path:
    """Overwrite what the directory says of an entry, at an offset into its line."""
    data = bytearray(path.read_bytes())
    start = data.rindex(name.encode()) - 46 + offset
    data[start : start + len(value)] = value
    path.write_bytes(data)
    return path


def test_hostile_entries_are_refused() -> None:
    path, one, two_gib = Path("run.tkb"), ("calls.json", b"[]"), struct.pack("<I", 2**31)
    assert {
        "link": problem_of(pack(path, (entry("raw/x", external_attr=(stat.S_IFLNK | 0o777) << 16), b"/etc"))),
        "place": problem_of(pack(path, ("virus.exe", b""))),
        "method": problem_of(pack(path, (entry("raw/x", compress_type=zipfile.ZIP_BZIP2), b""))),
        "encrypted": problem_of(patched(pack(path, one), "calls.json", 8, b"\x01\0")),
        "huge": problem_of(patched(pack(path, one), "calls.json", 24, two_gib)),
        "far": problem_of(patched(pack(path, one), "calls.json", 42, two_gib)),
        "version": problem_of(patched(pack(path, one), "calls.json", 6, b"\xff")),
        "no UTF-8": problem_of(patched(pack(path, ("raw/é", b"")), "raw/é", 46, b"\xff")),
    } == snapshot(
        {
            "link": "run.tkb: entry 'raw/x' is a link or device",
            "place": "run.tkb: entry 'virus.exe' has no place in a bundle",
            "method": "run.tkb: entry 'raw/x' is packed in a way that bundles do not use",
            "encrypted": "run.tkb: entry 'calls.json' is encrypted or uses rare features of ZIP",
            "huge": "run.tkb: entry 'calls.json' claims to unpack to far more than it could hold",
            "far": "run.tkb: entry 'calls.json' lies outside the file",
            "version": "run.tkb is damaged or cut short",
            "no UTF-8": "run.tkb is damaged or cut short",
        }
    )


def test_same_name_twice_is_refused() -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        pack(Path("run.tkb"), ("calls.json", b"1"), ("calls.json", b"2"))
    assert problem_of(Path("run.tkb")) == snapshot("run.tkb: entry 'calls.json' is there twice")


def test_entries_that_share_bytes_are_refused() -> None:
    path = pack(Path("run.tkb"), ("raw/a", bytes(1000)), ("raw/b", b""))
    start = path.read_bytes().rindex(b"raw/a") - 46
    sizes = path.read_bytes()[start + 16 : start + 28]
    patched(patched(path, "raw/b", 16, sizes), "raw/b", 42, bytes(4))
    assert problem_of(path) == snapshot("run.tkb claims to hold more than a file of its size can")


def test_bomb_is_refused_unread() -> None:
    with zipfile.ZipFile("run.tkb", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("tables/kernel.parquet", "w") as bomb:
            for _ in range(2**8):
                bomb.write(bytes(2**20))
        archive.writestr("manifest.json", manifest_of({}))
    assert problem_of(Path("run.tkb")) == snapshot(
        "run.tkb: entry 'tables/kernel.parquet' claims to unpack to far more than it could hold"
    )


def test_bomb_that_declares_a_small_size_is_never_unpacked_beyond_it() -> None:
    path = pack(Path("run.tkb"), ("calls.json", bytes(2**24)), method=zipfile.ZIP_DEFLATED)
    patched(path, "calls.json", 24, struct.pack("<I", 1000))
    [check] = bundle.verify(path)
    assert check.bytes <= 1000
    assert not check.ok


@pytest.mark.parametrize(
    ("count", "problem"),
    [
        (100_001, "run.tkb claims to hold more than a file of its size can"),
        (600_000, "run.tkb is damaged or cut short"),
    ],
)
def test_too_many_entries_are_refused(count: int, problem: str) -> None:
    data = pack(Path("run.tkb")).read_bytes()
    start, end = data.rindex(b"PK\x01\x02"), data.rindex(b"PK\x05\x06")
    manifest = data[start:end]
    empty = manifest[:20] + bytes(8) + manifest[28:46]
    lines = manifest + b"".join(empty + f"raw/{number:09}".encode() for number in range(count))
    ending = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0, 0, len(lines), start, 0)
    Path("run.tkb").write_bytes(data[:start] + lines + ending)
    assert problem_of(Path("run.tkb")) == problem


def test_importing_it_needs_the_standard_library_alone() -> None:
    code = (
        "import sys; before = set(sys.modules); import tracekit.bundle\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(new - sys.stdlib_module_names))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    out = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert out.stdout.split() == ["tracekit"]
