"""`tracekit query`: answers in every format, refusals in one line."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from inline_snapshot import snapshot

from tests.build import document, op
from tracekit import catalog

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Said

ROOT = Path(__file__).parents[2]
TWO_COLUMNS = "select name, sum(dur_ns)::bigint as total_ns from work group by name order by name"


def test_a_question_is_answered_on_stdout(tracekit: Callable[..., Said], trace: Path) -> None:
    said = tracekit("query", trace, "top_kernels", "-p", "top=1", "-f", "csv")
    assert said.code == 0
    assert said.out == snapshot("""\
kernel,family,role,calls,total_ns,share_frac,cumulative_frac,mean_ns,p50_ns,p99_ns,max_ns
gemm,gemm,attention.out_proj,2,600000,0.6,0.6,300000.0,200000,400000,400000
""")
    assert said.err.splitlines()[-1] == (
        "warning: 10.0 % of device time has no op in the trace (see unlinked_kernels): "
        "its roles come from kernel names and order."
    )


def test_sql_is_answered_in_every_format(tracekit: Callable[..., Said], trace: Path) -> None:
    texts = {name: tracekit("query", trace, TWO_COLUMNS, "-f", name) for name in ("table", "csv", "tsv", "md", "json")}
    assert {said.code for said in texts.values()} == {0}
    assert {said.err for said in texts.values()} == {""}
    assert texts["table"].out == snapshot("""\
name              total [µs]
────────────────────────────
flash_fwd_kernel     300.000
gemm                 600.000
orphan               100.000
""")
    assert texts["csv"].out == snapshot("""\
name,total_ns
flash_fwd_kernel,300000
gemm,600000
orphan,100000
""")
    assert texts["tsv"].out == snapshot("""\
name	total_ns
flash_fwd_kernel	300000
gemm	600000
orphan	100000
""")
    assert texts["md"].out == snapshot("""\
| name | total [µs] |
| --- | ---: |
| flash_fwd_kernel | 300.000 |
| gemm | 600.000 |
| orphan | 100.000 |
""")
    assert json.loads(texts["json"].out)["rows"] == snapshot(
        [
            {"name": "flash_fwd_kernel", "total_ns": 300000},
            {"name": "gemm", "total_ns": 600000},
            {"name": "orphan", "total_ns": 100000},
        ]
    )
    assert tracekit("query", trace, TWO_COLUMNS).out == texts["table"].out


def test_parquet_goes_to_a_pipe_whole(tracekit: Callable[..., Said], trace: Path) -> None:
    said = tracekit("query", trace, TWO_COLUMNS, "-f", "parquet")
    assert pl.read_parquet(io.BytesIO(said.data)).rows() == [
        ("flash_fwd_kernel", 300_000), ("gemm", 600_000), ("orphan", 100_000)
    ]  # fmt: skip


def test_notes_that_a_format_cannot_hold_go_to_stderr(tracekit: Callable[..., Said], cpu_trace: Path) -> None:
    note = "note: No device was recorded: work is the self time of CPU ops.\n"
    plain = tracekit("query", cpu_trace, "top_kernels", "-f", "csv")
    assert plain.err == note
    assert "note" not in plain.out
    told = tracekit("query", cpu_trace, "top_kernels")
    assert told.err == ""
    assert told.out.endswith(note)


def test_the_suffix_of_the_output_is_its_format(tracekit: Callable[..., Said], trace: Path, folder: Path) -> None:
    for suffix, start in {"csv": b"name,", "tsv": b"name\t", "json": b"{", "md": b"| name", "parquet": b"PAR1"}.items():
        said = tracekit("query", trace, TWO_COLUMNS, "-o", f"answer.{suffix}")
        assert (said.code, said.data) == (0, b"")
        assert (folder / f"answer.{suffix}").read_bytes().startswith(start)
    tracekit("query", trace, TWO_COLUMNS, "-o", "answer")
    assert (folder / "answer").read_text(encoding="utf-8") == tracekit("query", trace, TWO_COLUMNS).out


def test_a_format_that_is_named_outdoes_the_suffix(tracekit: Callable[..., Said], trace: Path, folder: Path) -> None:
    tracekit("query", trace, TWO_COLUMNS, "-f", "json", "-o", "answer.csv")
    assert json.loads((folder / "answer.csv").read_text(encoding="utf-8"))["columns"][0]["name"] == "name"


def test_a_listing_says_what_a_run_lacks(tracekit: Callable[..., Said], cpu_trace: Path) -> None:
    said = tracekit("query", cpu_trace, "-f", "json")
    rows = {row["question"]: row for row in json.loads(said.out)["rows"]}
    assert sorted(rows) == catalog.names()
    assert rows["top_kernels"]["answerable"]
    assert rows["top_kernels"]["needs"] is None
    assert not rows["unlinked_kernels"]["answerable"]
    assert rows["unlinked_kernels"]["needs"] == snapshot(
        "device activity: profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on a GPU"
    )


def test_a_question_that_a_run_cannot_answer_says_how_to_record_it(
    tracekit: Callable[..., Said], cpu_trace: Path
) -> None:
    assert tracekit("query", cpu_trace, "unlinked_kernels").fault == snapshot(
        "unlinked_kernels is not derivable from this run: it holds no kernel.dur_ns: it needs device activity: "
        "profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on a GPU"
    )


def test_the_list_needs_no_run(tracekit: Callable[..., Said]) -> None:
    said = tracekit("query", "--list", "-f", "csv")
    assert (said.code, said.err) == (0, "")
    assert [line.partition(",")[0] for line in said.out.splitlines()] == ["question", *catalog.names()]


@pytest.mark.parametrize("name", catalog.names())
def test_a_description_names_parameters_and_columns(tracekit: Callable[..., Said], name: str) -> None:
    said = tracekit("query", "--describe", name)
    assert (said.code, said.err) == (0, "")
    asked = catalog.question(name)
    assert said.out.startswith(f"{name}: {asked.summary}\n")
    for word in (*asked.columns, *(f"-p {param}=" for param in asked.params), *asked.requires):
        assert word in said.out


def test_a_file_of_peaks_is_used_instead_of_those_that_are_known(
    tracekit: Callable[..., Said], trace: Path, folder: Path
) -> None:
    peaks = "select name, flops_per_s['bfloat16'] as flops_per_s, reason from device_spec"
    path = folder / "mine.toml"
    path.write_text("name = 'throttled'\ntflops = { bfloat16 = 600 }\n")
    assert (
        "throttled,600000000000000.0,given by --device-spec"
        in tracekit("query", trace, peaks, "-f", "csv", "--device-spec", path).out
    )
    path.write_text("tflops = 600\n")
    assert "holds no tflops" in tracekit("query", trace, peaks, "--device-spec", path).fault
    assert "can't be read" in tracekit("query", trace, peaks, "--device-spec", folder / "none.toml").fault


def test_a_selection_narrows_the_answer(tracekit: Callable[..., Said], trace: Path) -> None:
    total = "select sum(dur_ns)::bigint as total_ns from work"
    options: list[list[str]] = [
        [], ["--steps", "4"], ["--steps", "4-5"], ["--steps", "5,4"], ["--ranks", "1"], ["--phase", "forward"],
        ["--phase", "other"], ["--phase", "forward", "--phase", "other", "--steps", "5"],
    ]  # fmt: skip
    answers = {
        " ".join(option): int(tracekit("query", trace, total, "-f", "csv", *option).out.split()[1])
        for option in options
    }
    assert answers == snapshot(
        {
            "": 1000000,
            "--steps 4": 500000,
            "--steps 4-5": 900000,
            "--steps 5,4": 900000,
            "--ranks 1": 1000000,
            "--phase forward": 900000,
            "--phase other": 100000,
            "--phase forward --phase other --steps 5": 400000,
        }
    )


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--steps", "a"], "Error: Invalid value for '--steps': 'a' is not a list of numbers such as 2-4,7"),
        (["--steps", ""], "Error: Invalid value for '--steps': '' is not a list of numbers such as 2-4,7"),
        (["--steps", "1,"], "Error: Invalid value for '--steps': '1,' is not a list of numbers such as 2-4,7"),
        (["--steps", "-1"], "Error: Invalid value for '--steps': '-1' is not a list of numbers such as 2-4,7"),
        (["--steps", "1.5"], "Error: Invalid value for '--steps': '1.5' is not a list of numbers such as 2-4,7"),
        (["--steps", "4-2"], "Error: Invalid value for '--steps': '4-2' ends before it starts"),
        (
            ["--ranks", "0-999999999"],
            "Error: Invalid value for '--ranks': '0-999999999' is a range of more than 100,000 numbers",
        ),
        (
            ["--phase", "sideways"],
            "Error: Invalid value for '--phase': 'sideways' is not one of "
            "'forward', 'backward', 'recompute', 'optimizer', 'other'.",
        ),
        (["-p", "top"], "Error: Invalid value for '-p' / '--param': 'top' is not of the form name=value"),
        (["-p", "=5"], "Error: Invalid value for '-p' / '--param': '=5' is not of the form name=value"),
        (["--timeout", "0"], "Error: Invalid value for '--timeout': 0.0 is not in the range x>=0.01."),
        (["--timeout", "soon"], "Error: Invalid value for '--timeout': 'soon' is not a valid number of seconds."),
        (["--timeout", "nan"], "Error: Invalid value for '--timeout': 'nan' is not a number of seconds"),
        (
            ["-f", "docx"],
            "Error: Invalid value for '-f' / '--format': 'docx' is not one of "
            "'table', 'csv', 'tsv', 'json', 'md', 'parquet'.",
        ),
        (["-o", "."], "Error: Invalid value for '-o' / '--output': File '.' is a directory."),
        (["-o", ""], "Error: Invalid value for '-o' / '--output': '' is not the name of a file."),
        (
            ["-o", "answer.xlsx"],
            "Error: Invalid value for '-o' / '--output': no format has the suffix .xlsx: "
            "use .txt, .csv, .tsv, .json, .md, .markdown, .parquet, or say -f.",
        ),
        (["one more word"], "Error: Got unexpected extra argument (one more word)"),
    ],
)
def test_an_option_that_makes_no_sense_is_a_fault_of_usage(
    tracekit: Callable[..., Said], trace: Path, options: list[str], line: str
) -> None:
    """What the command line alone tells to be wrong ends with 2, before the run is opened."""
    for run in (trace, "no-such-run"):
        said = tracekit("query", run, "top_kernels", *options)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith("Usage: tracekit query")
        assert said.err.splitlines()[-1] == line


@pytest.mark.parametrize(
    "verb", [["doctor"], ["summary"], ["query"], ["bundle", "info"], ["schema"], ["cache", "info"]]
)
def test_a_format_that_does_not_exist_is_a_fault_of_usage_wherever_it_is_named(
    tracekit: Callable[..., Said], trace: Path, folder: Path, verb: list[str]
) -> None:
    run = [] if verb[0] in {"schema", "cache"} else [trace]
    for options in (["-f", "yaml"], ["-o", "answer.yaml"], ["-o", "answer.yaml", "--force"]):
        said = tracekit(*verb, *run, *options)
        assert (said.code, said.out) == (2, "")
        assert said.err.splitlines()[-1].startswith("Error: Invalid value for '-")
    assert [path.name for path in folder.iterdir()] == ["train.json"]


def test_a_run_must_be_given(tracekit: Callable[..., Said]) -> None:
    said = tracekit("query")
    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines()[-1] == "Error: give a RUN: a bundle or a trace (or --list)"


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (
            ["top_kernel"],
            "there is no question 'top_kernel': did you mean top_kernels or unlinked_kernels?",
        ),
        (
            ["top-kernels"],
            "there is no question 'top-kernels': did you mean top_kernels or kernel_fusion?",
        ),
        (["xyzzy"], "there is no question 'xyzzy': `tracekit query --list` names them all"),
        ([""], "there is no question '': `tracekit query --list` names them all"),
        (["top_kernels", "-p", "tip=5"], "top_kernels has no parameter 'tip': it takes: top"),
        (["attention_share", "-p", "tip=5"], "attention_share has no parameter 'tip': it takes: none"),
        (["top_kernels", "-p", "top=five"], "parameter top: 'five' is not a whole number: write -p top=20"),
        (["top_kernels", "-p", "top="], "parameter top: '' is not a whole number: write -p top=20"),
        (
            ["kernel_attribution", "-p", "by_step=perhaps"],
            "parameter by_step: 'perhaps' is neither true nor false: write -p by_step=true",
        ),
        (
            ["top_kernels", "--steps", "4,9"],
            "the run has no step 9: it has 4, 5",
        ),
        (["top_kernels", "--ranks", "0"], "the run has no rank 0: it has 1"),
        (["top_kernels", "--memory-limit", "lots"], "'lots' is no amount of memory: write it as 512MB or 4GB"),
        (["select 1", "--memory-limit", "0GB"], "'0GB' is no amount of memory: write it as 512MB or 4GB"),
        (["select 1", "-p", "a=1"], "SQL takes no parameters: write the values into the text"),
        (["select 1; select 2"], "the SQL holds 2 statements: give exactly one SELECT"),
        (["copy (select 1) to 'x.csv'"], "the SQL is no SELECT but COPY: a bundle can only be read"),
        (["attach 'y.db'"], "the SQL is no SELECT but ATTACH: a bundle can only be read"),
        (
            ["pivot kernel on name"],
            "the SQL is no SELECT but MULTI: name the values: `pivot ... on column in (...)`",
        ),
        (
            ["select interval 1 day as i"],
            "column i is of type INTERVAL, which no table holds: cast it, as in x::varchar",
        ),
        (
            ["select count(*) from range(1000000000000)", "--timeout", "0.2"],
            "the query ran longer than 0.2 s and was stopped: ask for less, or raise --timeout",
        ),
        (
            ["select * from range(1000000000000)", "--memory-limit", "50MB"],
            "the query needs more than 50MB of memory: ask for less, or raise --memory-limit",
        ),
    ],
)
def test_a_question_that_cannot_be_answered_is_a_fault_in_one_line(
    tracekit: Callable[..., Said], trace: Path, folder: Path, args: list[str], line: str
) -> None:
    assert tracekit("query", trace, *args, "-o", "answer.csv").fault == line
    assert sorted(path.name for path in folder.iterdir()) == ["train.json"]


@pytest.mark.parametrize(
    ("sql", "start", "end"),
    [
        ("selec 1", "SQL: Parser Error: ", "a question is a name of `tracekit query --list`, or one SELECT"),
        ("select no_such_column from kernel", "SQL: Binder Error: ", "`tracekit schema` lists tables and columns"),
        ("select * from no_such_table", "SQL: Catalog Error: ", "`tracekit schema` lists tables and columns"),
        ("select error('first\nsecond')", "SQL: Invalid Input Error: first second: ", "lists tables and columns"),
        ("with x as (copy (select 1) to 'x.csv') from x", "SQL: Binder Error: ", "lists tables and columns"),
        ("select * from 'train.json'", "SQL: Permission Error: ", "a query sees the run's tables alone"),
        ("from read_text('train.json')", "SQL: Permission Error: ", "a query sees the run's tables alone"),
    ],
)
def test_what_the_engine_refuses_is_a_fault_in_one_line_too(
    tracekit: Callable[..., Said], trace: Path, folder: Path, sql: str, start: str, end: str
) -> None:
    fault = tracekit("query", trace, sql).fault
    assert fault.startswith(start)
    assert fault.endswith(end)
    assert "LINE 1" not in fault
    assert sorted(path.name for path in folder.iterdir()) == ["train.json"]


def test_an_output_that_exists_is_kept_unless_forced(tracekit: Callable[..., Said], trace: Path, folder: Path) -> None:
    kept = folder / "answer.csv"
    kept.write_text("mine")
    fault = "answer.csv exists: choose another name, or give --force to replace it"
    assert tracekit("query", trace, TWO_COLUMNS, "-o", "answer.csv").fault == fault
    assert tracekit("query", "--list", "-o", "answer.csv").fault == fault
    assert tracekit("schema", "-o", "answer.csv").fault == fault
    assert tracekit("summary", trace, "-o", "answer.csv").fault == fault
    assert tracekit("query", "no-such-run", "top_kernels", "-o", "answer.csv").fault == fault
    assert kept.read_text() == "mine"
    assert tracekit("query", trace, TWO_COLUMNS, "-o", "answer.csv", "--force").code == 0
    assert kept.read_text().startswith("name,total_ns\n")
    assert sorted(path.name for path in folder.iterdir()) == ["answer.csv", "train.json"]


def test_a_link_is_followed_and_stays(tracekit: Callable[..., Said], trace: Path, folder: Path) -> None:
    (folder / "real.csv").write_text("old")
    (folder / "link.csv").symlink_to("real.csv")
    (folder / "dangling.csv").symlink_to("nowhere.csv")
    assert tracekit("query", trace, TWO_COLUMNS, "-o", "link.csv", "--force").code == 0
    assert (folder / "link.csv").is_symlink()
    assert (folder / "real.csv").read_text().startswith("name,")
    assert tracekit("query", trace, TWO_COLUMNS, "-o", "dangling.csv").fault.startswith("dangling.csv exists")


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (
            "no/such/folder/answer.csv",
            "no/such/folder/answer.csv can't be written (No such file or directory): "
            "choose a folder that exists and has room",
        ),
        (
            "train.json/answer.csv",
            "train.json/answer.csv can't be written (Not a directory): choose a folder that exists and has room",
        ),
        (
            f"{'x' * 250}.csv",
            f"{'x' * 250}.csv can't be written (File name too long): choose a folder that exists and has room",
        ),
    ],
)
def test_an_output_that_cannot_be_written_is_a_fault_in_one_line(
    tracekit: Callable[..., Said], trace: Path, folder: Path, output: str, line: str
) -> None:
    assert tracekit("query", trace, TWO_COLUMNS, "-o", output).fault == line
    assert [path.name for path in folder.iterdir()] == ["train.json"]


def test_a_folder_that_may_not_be_written_is_a_fault_in_one_line(
    tracekit: Callable[..., Said], trace: Path, folder: Path
) -> None:
    shut = folder / "shut"
    shut.mkdir(mode=0o555)
    if os.access(shut, os.W_OK):
        pytest.skip("this user may write anywhere")
    assert tracekit("query", trace, TWO_COLUMNS, "-o", "shut/answer.csv").fault == (
        "shut/answer.csv can't be written (Permission denied): choose a folder that exists and has room"
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_device_or_pipe_is_never_replaced(tracekit: Callable[..., Said], trace: Path, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert tracekit("query", trace, TWO_COLUMNS, "-o", "pipe", "--force").fault == (
        "'pipe' is not a file: name one, such as answer.csv"
    )
    assert (folder / "pipe").is_fifo()


def test_names_may_hold_blanks_and_any_letters(tracekit: Callable[..., Said], folder: Path) -> None:
    home = folder / "große Läufe 🙂"
    home.mkdir()
    (home / "ein lauf.json").write_bytes(document(op("aten::mül 🙂", 0, 100)))
    run = home / "läuft %s {0}.tkb"
    assert tracekit("load", home / "ein lauf.json", "-o", run).code == 0
    assert tracekit("query", run, "select name from op", "-o", home / "ant wort.csv").code == 0
    assert (home / "ant wort.csv").read_text(encoding="utf-8") == "name\naten::mül 🙂\n"
    assert tracekit("query", run, "select 'ü' as \"größe 🙂\"", "-f", "csv").out == "größe 🙂\nü\n"
    assert "läuft %s {0}.tkb" in tracekit("bundle", "verify", run).out
    assert tracekit("query", home / "fehlt {0} %s.tkb", "top_kernels").fault.startswith(
        f"{home / 'fehlt {0} %s.tkb'} can't be read ("
    )


NOT_BY_HAND = {"collectives", "head_occupancy", "memory_hotspots", "module_tree", "padding_waste"}
NOT_RECORDED = {
    "collectives",
    "head_occupancy",
    "launch_gaps",
    "unlinked_kernels",
    "kernel_fusion",
    "precision",
    "padding_waste",
}


@pytest.mark.parametrize("is_real", [False, True], ids=["by hand", "recorded"])
def test_a_bundle_answers_every_question_as_its_trace_does(
    tracekit: Callable[..., Said], trace: Path, *, is_real: bool
) -> None:
    source = ROOT / "sample_traces" / "train.json.gz" if is_real else trace
    assert tracekit("load", source, "-o", "run.tkb", "--keep-raw").code == 0
    in_sql = [name for name in catalog.names() if catalog.question(name).sql]
    for question in (*in_sql, "from op order by op_id", "from kernel order by kernel_id", "from step", None):
        words = ["-f", "json"] if question is None else [question, "-f", "json"]
        raw, loaded = tracekit("query", source, *words), tracekit("query", "run.tkb", *words)
        assert loaded == raw
        assert raw.code == (question in (NOT_RECORDED if is_real else NOT_BY_HAND))
