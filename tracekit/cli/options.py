"""Options that mean the same for every verb, how their text is read, and what a verb is handed of them."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.output import Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    _RangesType = click.ParamType[frozenset[int]]
    _AssignmentsType = click.ParamType[tuple[str, str]]
else:  # a subscript needs click 8.4, and training images have older ones
    _RangesType = _AssignmentsType = click.ParamType


FILE = click.Path(readable=False)
"""A path that click takes as it is: what is wrong with it is said in one line, by what opens it."""
NO_FOLDER = click.Path(readable=False, dir_okay=False)
FORMATS = ("table", "csv", "tsv", "json", "md", "parquet")


class Ranges(_RangesType):
    """Whole numbers and ranges of them: `3`, `2-4`, `1,3-5`."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[int]:
        """Return the numbers that a text names."""
        if isinstance(value, frozenset):
            return value
        found: set[int] = set()
        for part in str(value).split(","):
            first, dash, last = part.strip().partition("-")
            if not first.isdigit() or (dash and not last.isdigit()):
                self.fail(f"{value!r} is not a list of numbers such as 2-4,7", param, ctx)
            if int(last or first) < int(first):
                self.fail(f"{part!r} ends before it starts", param, ctx)
            if int(last or first) - int(first) > 100_000:
                self.fail(f"{part!r} is a range of more than 100,000 numbers", param, ctx)
            found.update(range(int(first), int(last or first) + 1))
        return frozenset(found)


class Seconds(click.FloatRange):
    """A time above 0, as a number of seconds."""

    name = "number of seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; `nan` is none."""
        seconds = float(super().convert(value, param, ctx))
        if math.isnan(seconds):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


class Assignments(_AssignmentsType):
    """A parameter and its value: `top=5`."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return name and value."""
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not equals or not name:
            self.fail(f"{value!r} is not of the form name=value", param, ctx)
        return name.strip(), text


@dataclass(frozen=True)
class Opening:
    """How a run is opened: what a question may cost, and the part of the run that is looked at."""

    timeout: float
    memory_limit: str
    steps: frozenset[int] = frozenset()
    ranks: frozenset[int] = frozenset()
    phases: tuple[str, ...] = ()
    device_spec: str | None = None


def _handed(command: Callable[..., Any], name: str, kind: type[Any]) -> Callable[..., Any]:
    """Hand a command its options as one object, each as the field of its name."""
    known = [field.name for field in fields(kind)]

    @wraps(command)
    def handing(**given: Any) -> Any:
        own = {each: given.pop(each) for each in known if each in given}
        return command(**given, **{name: kind(**own)})

    return handing


def named(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Return a file's name; an empty one, which click takes, is none."""
    if value == "":
        raise click.BadParameter("'' is not the name of a file.")
    return value


def output(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add -f, -o and --force; the command is handed an `Answer` that may be written."""
    command = _handed(command, "answer", Answer)
    for option in (
        click.option("--force", is_flag=True, help="Replace an output that exists."),
        click.option(
            "-o",
            "--output",
            "path",
            type=NO_FOLDER,
            callback=named,
            help="Write to this file instead of stdout.",
        ),
        click.option(
            "-f",
            "--format",
            "format_name",
            type=click.Choice(FORMATS),
            help="Default: by the output's suffix, else table.",
        ),
    ):
        command = option(command)
    return command


def workers() -> int:
    """Return how many processes read a large trace unless somebody says otherwise."""
    return min(8, os.cpu_count() or 1)


def reading(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --strict, --trust-archive and --workers, which say how traces are read."""
    for option in (
        click.option(
            "--workers",
            type=click.IntRange(1, 256),
            default=workers,
            show_default="one a core, 8 at most",
            help="Processes that read a large trace.",
        ),
        click.option("--trust-archive", is_flag=True, help="Unpack an archive that grows more than 200 times."),
        click.option("--strict", is_flag=True, help="Refuse a broken trace instead of repairing it."),
    ):
        command = option(command)
    return command


def selection(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --steps, --ranks and --phase, to a command that has `limits`."""
    phases = ("forward", "backward", "recompute", "optimizer", "other")
    for option in (
        click.option(
            "--phase",
            "phases",
            multiple=True,
            type=click.Choice(phases),
            help="Only this phase; may be repeated.",
        ),
        click.option("--ranks", type=Ranges(), default=frozenset(), help="Only these ranks, such as 0-3."),
        click.option("--steps", type=Ranges(), default=frozenset(), help="Only these profiler steps, such as 2-4,7."),
    ):
        command = option(command)
    return command


def device_spec(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --device-spec, to a command that has `limits`."""
    return click.option(
        "--device-spec",
        metavar="FILE",
        type=NO_FOLDER,
        callback=named,
        help="Peaks of the device, TOML: tflops = { bfloat16 = 989.5 }, gb_per_s = 3350.",
    )(command)


def limits(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --timeout and --memory-limit; the command is handed them, and the selection, as an `Opening`."""
    command = _handed(command, "opening", Opening)
    for option in (
        click.option("--memory-limit", default="4GB", show_default=True, help="Memory a question may use."),
        click.option(
            "--timeout",
            type=Seconds(0.01),
            metavar="SECONDS",
            default=60.0,
            show_default=True,
            help="Time a question may take.",
        ),
    ):
        command = option(command)
    return command
