"""A second opinion: questions that HolisticTraceAnalysis answers, run on the trace files themselves.

Owns what HTA needs (to be installed, and traces as JSON files in a folder), the process it runs in, and how its
faults are told. What is asked of it lies in `hta_worker`, what the questions are in `hta_questions.toml`. The catalog
reads these with every question, so that what only an answer needs is imported there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.analyses.headers import headers_of
from tracekit.errors import TracekitError
from tracekit.table import Note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import polars as pl

DISTRIBUTION = "HolisticTraceAnalysis"
NEEDS = ("the trace itself", DISTRIBUTION)
"""What its questions need beside the tables of a run."""
_INSTALL = "pip install 'HolisticTraceAnalysis>=0.5' 'pandas<3'"
_KEEP = "ask the raw trace, or a bundle loaded with --keep-raw"
_NO_ROUNDING = "HTA_DISABLE_NS_ROUNDING"  # source: hta/configs/env_options.py
_NO_ANNOTATION = "no annotation is called"
_MICROSECOND = 1000
_ROUNDED = (
    "HTA rounds starts up and ends down to whole µs: each piece of work loses up to 2 µs, and one shorter than that "
    "may last no time or less; -p rounded=false takes times as they are."
)
_TYPES = {
    **dict.fromkeys(("cause", "bound_by", "name"), "String"),
    **dict.fromkeys(("share_frac", "overlap_frac"), "Float64"),
}
"""Types of the columns, as Polars calls them; all others are whole numbers."""


def headers() -> dict[str, dict[str, Any]]:
    """Return the questions by name, each as a header of a question is written."""
    return headers_of("hta_questions")


def lacking(path: Path | None) -> list[str]:
    """Return what it takes to ask HTA about the run at `path`, in the words of a remedy; nothing if all is there."""
    from tracekit.loading.raw import has_raw

    ways = []
    if path is None or not has_raw(path):
        ways.append(f"the trace itself: {_KEEP}")
    if installed() is None:
        ways.append(f"{DISTRIBUTION}: {_INSTALL}")
    return ways


def installed() -> str | None:
    """Return which version of HTA is installed."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import, for what other questions don't ask

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return None


def answer(
    name: str, path: Path | None, traces: pl.DataFrame, params: Mapping[str, Any], seconds: float
) -> tuple[pl.DataFrame, tuple[Note, ...]]:
    """Ask HTA about the run at `path`, within some seconds, and return its rows and what to know about them.

    `traces` holds `rank`, `source_name`, `time_resolution_ns` and `is_selected` of all traces of the run, in order.
    Raises TracekitError if HTA or the traces are missing, or HTA fails.
    """
    from tracekit.loading.raw import has_raw, raw_traces

    if path is None or not has_raw(path):
        raise TracekitError(f"{name} is not derivable from this run: it does not hold the trace itself", _KEEP)
    used = installed()
    if used is None:
        raise TracekitError(f"{name} needs {DISTRIBUTION}, which is not installed", _INSTALL)
    found = raw_traces(path, traces["source_name"].to_list())
    picked = [index for index, is_selected in enumerate(traces["is_selected"]) if is_selected]
    with tempfile.TemporaryDirectory(prefix="tracekit-hta-") as folder:
        contents = [(found[index], traces["source_name"][index]) for index in picked]
        paths = [_written(*each, Path(folder) / f"{number}.json") for number, each in enumerate(contents)]
        rows = _asked(name, paths, params, seconds)
    frame = _frame(name, rows, [traces["rank"][index] for index in picked])
    top = params.get("top") or frame.height
    return frame.head(top), (*_notes(name, used, traces, params), *_cut(frame.height, top))


def _written(content: Path | bytes, name: str, path: Path) -> str:
    """Set a trace down as plain JSON, however it is packed, since HTA goes by the ends of names."""
    from tracekit.ingest import opened

    with opened(content, name) as stream, path.open("wb") as file:
        for block in stream.blocks():
            file.write(block)
    if stream.damage:
        raise TracekitError(f"{name}: {stream.damage}", "HTA reads whole traces only")
    return str(path)


def _asked(name: str, paths: Sequence[str], params: Mapping[str, Any], seconds: float) -> list[dict[str, Any]]:
    """Run HTA in a process and a folder of its own and return its rows."""
    folder = Path(paths[0]).parent
    job, result, said = (folder / part for part in ("job.txt", "answer.txt", "said.txt"))
    job.write_text(json.dumps({"question": name, "files": list(paths), **params}), encoding="utf-8")
    command = [sys.executable, "-P", str(Path(__file__).with_name("hta_worker.py")), str(job), str(result)]
    env = {**os.environ, _NO_ROUNDING: str(int(not params["rounded"]))}
    with said.open("wb") as stderr:
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TracekitError(f"HTA took more than {seconds:g} s", "give it more with --timeout") from error
    if done.returncode:
        raise _fault(name, said.read_bytes()[-10_000:].decode(errors="replace"), done.returncode)
    rows: list[dict[str, Any]] = json.loads(result.read_bytes())
    return rows


def _fault(name: str, said: str, code: int) -> TracekitError:
    """Return HTA's fault in one line: the exception that ended it."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = lines[-1][:300] if lines else f"it ended with {code}"
    if _NO_ANNOTATION in last:
        return TracekitError(last.partition(": ")[2], "give -p annotation=NAME, or -p annotation= for the whole trace")
    if "Cannot specify both 'axis'" in last:  # source: critical_path_analysis.py line 415, pandas 3
        return TracekitError(f"HTA {installed()} can't do this with pandas 3", "pip install 'pandas<3'")
    return TracekitError(f"HTA {installed()} fails on this trace ({last})", f"ask {headers()[name]['instead']} instead")


def _frame(name: str, rows: list[dict[str, Any]], ranks: Sequence[int | None]) -> pl.DataFrame:
    """Return rows in the columns of the question, ordered by rank, the longest times first."""
    import polars as pl

    columns = list(headers()[name]["columns"])
    schema = {column: getattr(pl, _TYPES.get(column, "Int64")) for column in columns}
    made = pl.DataFrame([{**row, "rank": ranks[row["trace"]]} for row in rows], schema=schema, orient="row")
    long = next((column for column in ("idle_ns", "path_ns") if column in columns), None)
    keys = [column for column in ("stream", long, "cause", "bound_by", "name") if column in columns]
    return made.sort(["rank", *keys], descending=[False, *(key == long for key in keys)], maintain_order=True)


def _notes(name: str, used: str, traces: pl.DataFrame, params: Mapping[str, Any]) -> Iterator[Note]:
    yield Note("info", f"By HTA {used}, as a second opinion; tracekit's own answer is {headers()[name]['instead']}.")
    if params["rounded"] and (traces.filter("is_selected")["time_resolution_ns"] < _MICROSECOND).any():
        yield Note("warning", _ROUNDED)
    yield from (Note(row["status"], row["text"]) for row in headers()[name]["notes"])


def _cut(rows: int, top: int) -> Iterator[Note]:
    if rows > top:
        yield Note("info", f"{rows} rows in all; -p top=0 shows every one.")
