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
COMBINE = "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>>(Flash_fwd_params)"


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


def captured_attention(*shapes: list[int], times: int = 1) -> bytes:
    """Return a capture of flash attention over [b, heads, tokens, head dim], `times` calls of two kernels and a product each."""
    calls: list[Event] = []
    for at in range(times):
        start = 10 + 50 * at
        args = {"Input_Dims": [*shapes, [], [], [], []], "Input_type": ["c10::Half"] * 3 + ["Scalar"] * 4}
        args["Concrete_Inputs"] = ["", "", "", "0.", "False", "False", ""]
        calls.append(op("aten::_scaled_dot_product_flash_attention", start, 30, **args))
        calls += [call(start + 5, 100 + 3 * at, FLASH), call(start + 9, 101 + 3 * at, COMBINE)]
        calls += [op("aten::mm", start + 40, 5), call(start + 41, 102 + 3 * at, GEMM)]
    begin, end = call(6, 1, None, runtime="hipStreamBeginCapture"), 20 + 50 * times
    return document(begin, *calls, call(end, 2, None, runtime="hipStreamEndCapture"), call(end + 2, 3, None))


def test_a_replayed_attention_has_the_sizes_of_its_capture_as_an_estimate(tmp_path: Path) -> None:
    shape, keys = [2, 8, 1, 64], [2, 2, 100, 64]
    capture = captured_attention(shape, keys, keys, times=2)
    found = loaded(tmp_path, replayed(*[FLASH, COMBINE, GEMM] * 2), capture)["attention_call"]
    columns = ("source", "implementation", "mode", "b", "hq", "hkv", "nq", "nk", "d_qk", "kernels", "device_ns")
    assert found.select(columns).rows() == [("capture", "sdpa", "decode", 2, 8, 2, 1, 100, 64, 2, 10_000)] * 2
    columns = ("flops", "flops_status", "pairs_status", "bytes_status")
    assert found.select(columns).rows() == [(2 * 2 * 8 * 100 * 128, *["estimated"] * 3)] * 2


def test_captures_of_other_sizes_that_both_fit_tell_no_sizes(tmp_path: Path) -> None:
    captures = [captured_attention(*[[b, 8, 1, 64]] * 3) for b in (1, 2)]
    tables = loaded(tmp_path, replayed(FLASH, COMBINE, GEMM), *captures)
    assert tables["attention_call"].select("source", "b", "nq").rows() == [("kernel", None, None)]
    assert tables["kernel"]["op_name"].null_count() == 0


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


def test_attention_of_a_real_replay_has_the_sizes_of_its_capture(traces: Path, tmp_path: Path) -> None:
    """Hold them against the shapes of the captured ops: 32 queries of 32 heads, 8 of keys, of 128."""
    settings = Settings(graph_captures=(traces / "mi300x-sglang-decode-graph-capture.json.gz",))
    load(traces / "mi300x-sglang-decode-graph.json.gz", tmp_path / "run.tkb", settings=settings)
    calls = open_tables(tmp_path / "run.tkb")["attention_call"].collect().cast({pl.Categorical: pl.String})
    columns = ("source", "implementation", "mode", "b", "hq", "hkv", "nq", "d_qk", "dtype", "kernels")
    expected = ("capture", "sglang", "decode", 32, 32, 8, 1, 128, "bfloat16", 2)
    assert calls.select(columns).rows() == [expected] * 36
    assert calls["layer"].to_list() == list(range(36))
    assert calls["nk"].null_count() == 36
