"""`tracekit bundle`: what a bundle holds, and which entry is damaged."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING

import pytest
from inline_snapshot import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Said


def test_info_lists_the_entries_and_what_was_left_out(tracekit: Callable[..., Said], run_file: Path) -> None:
    said = tracekit("bundle", "info", run_file, "-f", "json")
    assert (said.code, said.err) == (0, "")
    told = json.loads(said.out)
    with zipfile.ZipFile(run_file) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist() if info.filename != "manifest.json"}
    assert {row["entry"]: row["size_bytes"] for row in told["rows"]} == sizes
    assert [note["text"] for note in told["notes"]] == snapshot(
        [
            "Written by tracekit 0.1.0, schema version 1.",
            "Left out: raw (not asked for; load with --keep-raw to keep the trace).",
        ]
    )


def test_verify_says_that_all_is_well(tracekit: Callable[..., Said], run_file: Path) -> None:
    said = tracekit("bundle", "verify", "train.tkb")
    assert (said.code, said.err) == (0, "")
    assert said.out == snapshot("train.tkb: 17 entries, all as they were written\n")


def test_a_damaged_byte_in_any_entry_is_found_and_named(tracekit: Callable[..., Said], run_file: Path) -> None:
    whole = run_file.read_bytes()
    with zipfile.ZipFile(run_file) as archive:
        infos = {info.filename: info for info in archive.infolist()}
    for name, info in infos.items():
        start = info.header_offset + 30 + len(name.encode())
        hurt = bytearray(whole)
        hurt[start + info.file_size // 2] ^= 0x20
        run_file.write_bytes(bytes(hurt))
        for args in (["query", run_file, "top_kernels"], ["bundle", "verify", run_file]):
            fault = tracekit(*args).fault
            assert fault.startswith(f"{run_file}: ")
            assert name in fault
    run_file.write_bytes(whole)
    assert tracekit("bundle", "verify", run_file).code == 0


@pytest.mark.parametrize("kept_frac", [0.1, 0.5, 0.9, 0.999])
def test_a_bundle_that_is_cut_short_is_a_fault_in_one_line(
    tracekit: Callable[..., Said], run_file: Path, kept_frac: float
) -> None:
    data = run_file.read_bytes()
    run_file.write_bytes(data[: int(len(data) * kept_frac)])
    for args in (
        ["query", "train.tkb", "top_kernels"],
        ["bundle", "verify", "train.tkb"],
        ["bundle", "info", "train.tkb"],
    ):
        assert tracekit(*args).fault == snapshot(
            "train.tkb is damaged or cut short: get the file again, from a source you trust"
        )


@pytest.mark.parametrize("verb", ["info", "verify"])
def test_what_is_no_bundle_is_a_fault_in_one_line(
    tracekit: Callable[..., Said], trace: Path, folder: Path, verb: str
) -> None:
    (folder / "runs").mkdir()
    (folder / "empty.tkb").touch()
    assert tracekit("bundle", verb, "missing.tkb").fault == snapshot(
        "missing.tkb can't be read (No such file or directory): check the path, and that its folder exists"
    )
    assert tracekit("bundle", verb, "runs").fault == snapshot(
        "runs can't be read (not a file): name a file, such as run.tkb"
    )
    for name in ("train.json", "empty.tkb"):
        assert tracekit("bundle", verb, name).fault == (
            f"{name} is not a tracekit bundle: `tracekit load` makes one from a trace"
        )
