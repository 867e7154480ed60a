"""`tracekit capture`: record on the machine that runs the model.

Owns the options. torch is imported when a recording begins, so that help needs none.
"""

from __future__ import annotations

import os
import signal
import threading
import warnings
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.errors import TracekitError

from . import settings as asked
from .saving import check_output
from .settings import Plan, Settings, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .recorder import Recording

_OLDEST = (2, 5)
_POSITIVE = click.IntRange(1)
_QUIET = {"KINETO_LOG_LEVEL": "6", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""What keeps the profiler from writing lines of its own to stderr; where it failed, the verdict says so."""


def _key_and_value(text: str) -> tuple[str, str]:
    """Return the two sides of `key=value`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise click.BadParameter(f"{text!r} is not of the form key=value")
    return key.strip(), value


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add one option for each field of Settings, with its default."""
    choices = {
        "mode": (click.Choice(asked.MODES), "What a step does."),
        "batch": (_POSITIVE, "Sequences.  [default: as many as --lengths lists, else 4]"),
        "seq": (_POSITIVE, "Padded length; in decode, of the context.  [default: the longest listed, else 128]"),
        "heads": (_POSITIVE, "Query heads."),
        "kv_heads": (_POSITIVE, "Key and value heads.  [default: --heads]"),
        "head_dim": (_POSITIVE, "Width of a head."),
        "layers": (_POSITIVE, "Decoder layers."),
        "vocab": (click.IntRange(2), "Size of the vocabulary."),
        "dtype": (click.Choice(asked.DTYPES), "[default: float32 on the CPU, else bfloat16]"),
        "impl": (click.Choice(asked.IMPLEMENTATIONS), "Attention: SDPA as torch chooses, one backend of it, or naive."),
        "lengths": (str, "True lengths: 37,64,12 or uniform:LOW-HIGH, lognormal:MEDIAN,SIGMA, zipf:EXPONENT."),
        "seed": (click.IntRange(0), "Of weights, tokens and drawn lengths."),
        "mask": (click.Choice(asked.MASKS), "auto: is_causal alone, with --lengths a mask tensor."),
        "cache": (click.Choice(asked.CACHES), "In decode: it grows, or has its full size.  [default: dynamic]"),
        "steps": (_POSITIVE, "Steps to record, and to time before that."),
        "warmup": (click.IntRange(0), "Steps before the first timed one."),
        "device": (click.Choice(asked.DEVICES), "[default: cuda where there is one, else cpu]"),
    }
    defaults = asdict(Settings())
    for name, (kind, doc) in reversed(choices.items()):
        known = defaults[name] is not None
        option = click.option(
            f"--{name.replace('_', '-')}", type=kind, default=defaults[name], show_default=known, help=doc
        )
        command = option(command)
    return command


@click.group(short_help="Record a run on the machine that runs it.")
def capture() -> None:
    """Record a run on the machine that runs it, as one file that `tracekit query` answers from anywhere."""


@capture.command(short_help="Record a built-in decoder.")
@_options
@click.option(
    "--label",
    "labels",
    multiple=True,
    type=_key_and_value,
    metavar="KEY=VALUE",
    help="Name the workload; may be repeated.",
)
@click.option("-o", "--output", required=True, type=click.Path(), help="The bundle to write, RUN.tkb.")
@click.option("--force", is_flag=True, help="Replace an output that exists.")
def attention(output: str, labels: tuple[tuple[str, str], ...], *, force: bool, **options: Any) -> None:
    """Record a few steps of a built-in decoder, with random weights, and write them as the bundle -o RUN.tkb.

    The steps are also timed without the profiler, so that the bundle can say what recording them cost.
    """
    wanted = Settings(**options)
    check_output(Path(output), overwrite=force)
    planned = plan(wanted)
    try:
        _import_torch()
        recording = _record(wanted, planned, Path(output), dict(labels), force=force)
    except KeyboardInterrupt:
        raise TracekitError("interrupted: nothing was written") from None
    if recording.problems:
        raise TracekitError(str(recording), "run it with KINETO_LOG_LEVEL=0 set to see what the profiler says")
    click.echo(str(recording), err=True)


def _import_torch() -> None:
    """Import torch, and have it say nothing; raises TracekitError if it is missing or too old."""
    for variable, level in _QUIET.items():
        os.environ.setdefault(variable, level)
    remedy = f"pip install 'torch>={'.'.join(map(str, _OLDEST))}', or record where it is installed"
    try:
        with warnings.catch_warnings(), _interrupts_held():
            warnings.filterwarnings("ignore", message=".*NumPy")  # without it torch warns; nothing here needs it
            import torch
    except ImportError as error:
        raise TracekitError(f"recording needs torch ({error})", remedy) from error
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < _OLDEST:
        raise TracekitError(f"recording needs a newer torch than {torch.__version__}", remedy)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Let Ctrl-C wait for the end of this block: in the middle of its import, torch would abort the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if held:
        raise KeyboardInterrupt


def _record(wanted: Settings, planned: Plan, output: Path, label: dict[str, str], *, force: bool) -> Recording:
    from .builtin import record

    return record(planned, output, device=wanted.device, dtype=wanted.dtype, label=label, overwrite=force)
