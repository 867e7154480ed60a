"""`python -m tests.bench.load`: how fast traces load, beside other tools, on files that it makes itself.

Owns the command line and the order of things: make a file, measure the loads, ask the bundle, print, write JSON.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tests.bench import machine, report
from tests.bench.rounds import Job, in_turn
from tests.bench.tiling import Made
from tests.bench.tools import ENV, NAMES, ROOT, TRACEKIT, questions, tools
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SAMPLE = ROOT / "sample_traces" / "train.json.gz"
_UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9}
_say = partial(click.echo, err=True)


def _sizes(_context: click.Context, _option: click.Parameter, value: str) -> tuple[int, ...]:
    """Return the bytes that a text such as `50MB,1.5GB` names, in powers of ten."""
    found = [re.fullmatch(r"(\d+(?:\.\d+)?)(kB|MB|GB)", part.strip(), re.IGNORECASE) for part in value.split(",")]
    sizes = [int(float(match[1]) * _UNITS[match[2].lower()]) for match in found if match]
    if len(sizes) < len(found) or not all(sizes):
        raise click.BadParameter(f"{value!r} is not a list of sizes such as 50MB,5GB")
    return tuple(sizes)


def _in_a_folder(_context: click.Context, _option: click.Parameter, value: Path | None) -> Path | None:
    """Return a path to write to, whose folder exists: that it doesn't should not be found out at the end."""
    if value is not None and not value.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {value.parent}")
    return value


@click.command()
@click.option(
    "--trace",
    "traces",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A small trace to make the files of, .json or .json.gz; may be repeated. Default: a sample of tracekit's.",
)
@click.option("--sizes", callback=_sizes, default="50MB,500MB", show_default=True, help="Sizes of the files to make.")
@click.option("-n", "times", type=click.IntRange(1), default=3, show_default=True, help="Runs of each command.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep the files here, and reuse them.")
@click.option(
    "--json",
    "output",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_in_a_folder,
    help="Write all results here, each single measurement among them.",
)
@click.option(
    "--hta-python",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=sys.executable,
    help="The Python that has HTA. Default: this one.",
)
@click.option("--without", multiple=True, type=click.Choice(NAMES[1:]), help="Leave a tool out; may be repeated.")
@click.option("--profile", "is_profile", is_flag=True, help="Profile tracekit's load instead of measuring anything.")
def main(
    traces: tuple[Path, ...],
    sizes: tuple[int, ...],
    times: int,
    keep: Path | None,
    output: Path | None,
    hta_python: Path,
    without: tuple[str, ...],
    *,
    is_profile: bool,
) -> None:
    """Measure how fast traces load with tracekit, HolisticTraceAnalysis, json and orjson, and how fast bundles answer.

    Each command is a process of its own, measured from outside. The files are made of a small trace, by copies that
    follow one another in time. Without --keep they lie in the system's folder for temporary files (TMPDIR).
    """
    python = str(hta_python.absolute())  # not resolved: in a virtual environment, Python is a link to another
    about = _about(python)
    benches: list[report.Bench] = []
    profiles: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="tracekit-bench-") as name:
        scratch = Path(name)
        for trace, size in product(traces or (_SAMPLE,), sizes):
            made = _made(trace, size, (keep or scratch).absolute())
            if is_profile:
                profiles.append(_profiled(trace, made, scratch))
            else:
                benches.append(_bench(trace, made, scratch, times, python, without))
            if keep is None:
                made.path.unlink()
            if output is not None:  # after each file, since the next may take long
                files = [bench.as_json() for bench in benches]
                found = {"machine": about, "repetitions": times, "files": files, "profiles": profiles}
                output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if benches:
        click.echo(report.text(benches))
        click.echo(f"peak memory: {about['peak_memory']}")
    if any(bench.tracekit_failed for bench in benches):
        sys.exit(1)


def _about(python: str) -> dict[str, Any]:
    try:
        return machine.facts(sys.executable, python)
    except TracekitError as error:
        raise click.ClickException(str(error)) from error


def _made(trace: Path, size: int, folder: Path) -> Made:
    """Make a file in a process of its own: memory held here would be counted for the processes started from here."""
    _say(f"{trace.name}: making {report.size(size)}")
    command = [sys.executable, "-m", "tests.bench.tiling", str(trace.absolute()), str(size), str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(done.stderr.strip().splitlines()[-1])
    found = json.loads(done.stdout)
    return Made(**{**found, "path": Path(found["path"])})


def _bench(trace: Path, made: Made, scratch: Path, times: int, hta_python: str, without: Sequence[str]) -> report.Bench:
    """Measure all with one file."""
    fit, left_out = tools(made.path, made.bytes, scratch, hta_python, without)
    for line in left_out:
        _say(f"  {line}")
    loads = in_turn([Job(tool.name, tool.command, tool.env) for tool in fit], times, scratch, _say)
    bundles = {tool.name: tool.bundle for tool in fit if tool.bundle is not None and tool.bundle.exists()}
    asked = questions(bundles[TRACEKIT]) if TRACEKIT in bundles else []
    answers = in_turn([Job(name, command, ENV) for name, command in asked], times, scratch, _say)
    sizes = {name: bundle.stat().st_size for name, bundle in bundles.items()}
    for bundle in bundles.values():
        bundle.unlink()
    return report.Bench(trace.name, made, loads, sizes, answers, left_out)


def _profiled(trace: Path, made: Made, scratch: Path) -> dict[str, Any]:
    from tests.bench.profiling import profile

    _say(f"{trace.name}: profiling {report.size(made.bytes)}")
    try:
        done = profile(made.path, scratch / "profiled.tkb")
    except TracekitError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{trace.name}, {report.size(made.bytes)}, {made.events:,} events, {done.text()}\n")
    return {"trace": trace.name, "bytes": made.bytes, "events": made.events, **done.as_json()}


if __name__ == "__main__":
    main(prog_name="python -m tests.bench.load")
