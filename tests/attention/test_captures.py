"""Kernels that a graph replays take op, module and role of the calls that were captured, where the capture fits."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.build import document, event, frame, kernel, launch, op
from tracekit.errors import TracekitError
from tracekit.link.graphs import rules
from tracekit.loading import Settings, load, open_tables, tables_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.build import Event

GEMM, FLASH = "ampere_bf16_s16816gemm_bf16_128x64_tn", "flash_fwd_kernel"


def call(start: float, correlation: int, name: str | None, *, runtime: str = "hipLaunchKernel") -> Event:
    args: dict[str, Any] = {"correlation": correlation} | ({} if name is None else {"kernel": name})
    return event("cuda_runtime", runtime, start, 1, args=args)


def captured(*names: str | None, ops: tuple[str, ...] = (), runtime: str = "hipLaunchKernel") -> bytes:
    """Return a trace in which calls were captured, each in an op of its own and all in the module Linear_0."""
    inside = [
        [op(ops[at] if ops else "aten::mm", 10 + 10 * at, 5), call(11 + 10 * at, 100 + at, name, runtime=runtime)]
        for at, name in enumerate(names)
    ]
    end = 20 + 10 * len(names)
    return document(
        frame("nn.Module: LlamaMLP_0", 5, end, 1),
        call(6, 1, None, runtime="hipStreamBeginCapture"),
        *inside,
        call(end, 2, None, runtime="hipStreamEndCapture"),
        call(end + 2, 3, None),
    )


def replayed(*names: str, correlation: int = 7) -> bytes:
    return document(
        op("aten::add", 0, 3),
        launch(5, correlation, name="hipGraphLaunch"),
        *(kernel(name, 20 + 10 * at, 5, correlation) for at, name in enumerate(names)),
    )


def loaded(folder: Path, replay: bytes, *captures: bytes) -> dict[str, pl.DataFrame]:
    (folder / "replay.json").write_bytes(replay)
    paths = []
    for number, content in enumerate(captures):
        paths.append(folder / f"capture{number}.json")
        paths[-1].write_bytes(content)
    settings = Settings(graph_captures=tuple(paths))
    load(folder / "replay.json", folder / "run.tkb", settings=settings, overwrite=True)
    found = open_tables(folder / "run.tkb")
    return {name: table.collect().cast({pl.Categorical: pl.String}) for name, table in found.items()}


def noticed(tables: dict[str, pl.DataFrame]) -> dict[str, int]:
    rows = tables["quality"].filter(pl.col("check_name").str.starts_with("graph_capture"))
    return dict(rows.select("check_name", "count").iter_rows())


@pytest.mark.parametrize("row", rules()["work"], ids=lambda row: row["kind"])
def test_a_call_s_example_becomes_its_kind_of_work(row: dict[str, str]) -> None:
    matching = [
        rule["kind"] for rule in rules()["work"] if pl.Series([row["example"]]).str.contains(rule["pattern"])[0]
    ]
    assert matching[0] == row["kind"]


def test_a_replay_takes_over_what_its_capture_says(tmp_path: Path) -> None:
    tables = loaded(
        tmp_path, replayed(GEMM, "relu", GEMM), captured(GEMM, "relu", GEMM, ops=("a::mm", "a::act", "a::mm"))
    )
    rows = tables["kernel"].sort("start_ns")
    assert rows["role"].to_list() == ["mlp"] * 3
    assert rows["op_name"].to_list() == ["a::mm", "a::act", "a::mm"]
    assert set(rows["role_confidence"]) == {"likely"}
    assert set(rows["role_reason"]) == {"graph capture: module LlamaMLP"}
    assert rows.join(tables["module"], on="module_id")["path"].to_list() == ["LlamaMLP_0"] * 3
    assert rows["op_id"].null_count() == 3
    assert noticed(tables) == {"graph_capture_used": 1}


def test_branches_that_run_in_another_order_are_told_apart_by_name(tmp_path: Path) -> None:
    tables = loaded(tmp_path, replayed("b", GEMM, "a"), captured("a", "b", GEMM, ops=("x::a", "x::b", "aten::mm")))
    rows = tables["kernel"].sort("start_ns")
    assert rows["op_name"].to_list() == ["x::b", "aten::mm", "x::a"]


@pytest.mark.parametrize(
    "capture", [captured(GEMM, GEMM), captured(GEMM, "gelu", GEMM)], ids=["of another length", "of other kernels"]
)
def test_a_capture_that_does_not_fit_names_nothing_and_is_counted(tmp_path: Path, capture: bytes) -> None:
    tables = loaded(tmp_path, replayed(GEMM, "relu", GEMM), capture)
    assert tables["kernel"]["op_name"].null_count() == 3
    assert noticed(tables) == {"graph_capture_mismatch": 1}


def test_of_several_captures_the_one_that_fits_counts(tmp_path: Path) -> None:
    tables = loaded(tmp_path, replayed(GEMM, "relu"), captured(GEMM), captured(GEMM, "relu"))
    assert tables["kernel"]["role"].to_list() == ["mlp", "mlp"]


def test_without_names_the_kinds_must_fit_and_the_roles_are_inferred(tmp_path: Path) -> None:
    capture = captured(None, None, runtime="cudaLaunchKernel")
    tables = loaded(tmp_path, replayed(GEMM, "relu"), capture)
    assert tables["kernel"].select("role", "role_confidence").unique().rows() == [("mlp", "inferred")]
    tables = loaded(tmp_path, replayed(GEMM, FLASH), capture)
    assert noticed(tables) == {"graph_capture_mismatch": 1}


def test_a_trace_without_a_replay_says_so(tmp_path: Path) -> None:
    tables = loaded(tmp_path, document(op("aten::mm", 0, 3), launch(1, 7), kernel(GEMM, 9, 2, 7)), captured(GEMM))
    assert noticed(tables) == {"graph_capture_mismatch": 1}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (document(op("aten::mm", 0, 3)), "capture0.json holds no capture of a graph"),
        (b"{", "capture0.json"),
    ],
)
def test_what_is_no_capture_is_refused_and_nothing_is_written(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(TracekitError, match=words):
        loaded(tmp_path, replayed(GEMM, GEMM), content)
    assert not (tmp_path / "run.tkb").exists()
    with pytest.raises(TracekitError, match=r"nowhere\.json can't be read"):
        load(
            tmp_path / "replay.json",
            tmp_path / "run.tkb",
            settings=Settings(graph_captures=(tmp_path / "nowhere.json",)),
        )


# -- A real replay and its capture ----------------------------------------------------------------------------------


def test_every_kernel_of_a_real_replay_has_the_op_of_its_position_in_the_capture(traces: Path, tmp_path: Path) -> None:
    """Hold op names against the raw rows: the i-th captured call, and the op with the External id that it has."""
    capture_file = traces / "mi300x-sglang-decode-graph-capture.json.gz"
    settings = Settings(graph_captures=(capture_file,))
    load(traces / "mi300x-sglang-decode-graph.json.gz", tmp_path / "run.tkb", settings=settings)
    tables = open_tables(tmp_path / "run.tkb")
    rows = tables["kernel"].collect().sort("start_ns", "kernel_id")
    replay = rows.filter(pl.len().over("launch_id") > 1)
    raw = json.loads(gzip.decompress(capture_file.read_bytes()))["traceEvents"]
    calls = sorted((row for row in raw if row.get("cat") == "cuda_runtime"), key=lambda row: float(row["ts"]))
    begin = next(at for at, row in enumerate(calls) if row["name"] == "hipStreamBeginCapture")
    launches = [row for row in calls[begin:] if "kernel" in row["args"]]
    names = {row["args"]["External id"]: row["name"] for row in raw if row.get("cat") == "cpu_op"}
    assert len(replay) == len(launches) == 544
    assert replay["op_name"].to_list() == [names[row["args"]["External id"]] for row in launches]


def test_roles_that_order_alone_tells_of_a_replay_are_those_of_its_capture(traces: Path, tmp_path: Path) -> None:
    """Hold what order infers of kernels without op and module against what their capture proves."""
    replay = traces / "mi300x-sglang-decode-graph.json.gz"
    alone = tables_of(replay.read_bytes(), replay.name)["kernel"].sort("start_ns", "kernel_id")
    settings = Settings(graph_captures=(traces / "mi300x-sglang-decode-graph-capture.json.gz",))
    load(replay, tmp_path / "run.tkb", settings=settings)
    sure = open_tables(tmp_path / "run.tkb")["kernel"].collect().sort("start_ns", "kernel_id")
    pairs = Counter(
        (guess, truth)
        for guess, confidence, truth in zip(alone["role"], alone["role_confidence"], sure["role"], strict=True)
        if confidence == "inferred" and guess not in {"unlinked", "other"}
    )
    assert pairs == {
        ("attention.qkv_proj", "attention.qkv_proj"): 36,
        ("attention.out_proj", "attention.out_proj"): 36,
        ("attention.layout", "attention.layout"): 72,
        ("mlp", "mlp"): 108,
    }
