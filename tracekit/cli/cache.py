"""`tracekit cache`: what is kept of raw traces, and how to get the room back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tracekit.cli import options
from tracekit.cli.output import emit, put

if TYPE_CHECKING:
    from datetime import datetime

    from tracekit.cli.output import Answer
    from tracekit.loading.cache import Info
    from tracekit.table import Table


@click.group(short_help="See or clear what is kept of raw traces.")
def cache() -> None:
    """See or clear what is kept of raw traces.

    A raw trace is loaded once; what was made of it is kept in a cache, 4 GiB at most. The variable
    TRACEKIT_CACHE_BYTES sets another limit; 0 is no cache.
    """


@cache.command(short_help="Say how much is kept, and where.")
@options.output
def info(*, answer: Answer) -> None:
    """Say where the cache lies, how much it holds and may hold, and when it was used."""
    from tracekit.loading import cache as kept

    found = kept.info()
    if answer.format_name is None and answer.path is None:
        put("".join(f"{line}\n" for line in _lines(found)).encode())
    else:
        emit(_table(found), answer)


@cache.command(short_help="Delete what is kept.")
def clear() -> None:
    """Delete what is kept: all runs, and what broken-off writes left behind."""
    from tracekit.loading import cache as kept
    from tracekit.units import BYTES, text

    done = kept.clear()
    put(f"{kept.location()}: {_count(done.runs)} deleted, {text(done.bytes, BYTES)} freed\n".encode())


def _lines(found: Info) -> list[str]:
    from tracekit.units import BYTES, text

    limit = f"of at most {text(found.limit_bytes, BYTES)}" if found.limit_bytes else "and no more are kept"
    lines = [f"folder       {found.folder}", f"holds        {_count(found.runs)}, {text(found.bytes, BYTES)} {limit}"]
    if found.oldest_use and found.newest_use:
        lines += [
            f"last used    {found.newest_use:%Y-%m-%d %H:%M} UTC",
            f"oldest use   {found.oldest_use:%Y-%m-%d %H:%M} UTC",
        ]
    if found.left_over_bytes:
        lines += [f"left over    {text(found.left_over_bytes, BYTES)} of broken-off writes"]
    return lines


def _table(found: Info) -> Table:
    from tracekit.table import Rows, Table

    columns = {
        "folder": (str(found.folder), "String", "Where the cache lies."),
        "runs": (found.runs, "Int64", "Runs it holds."),
        "size_bytes": (found.bytes, "Int64", "Size of all runs."),
        "limit_bytes": (found.limit_bytes, "Int64", "Size above which the runs used longest ago are deleted."),
        "left_over_bytes": (found.left_over_bytes, "Int64", "Size of what broken-off writes left behind."),
        "oldest_use": (_iso(found.oldest_use), "String", "When the run used longest ago was used last, in UTC."),
        "newest_use": (_iso(found.newest_use), "String", "When a run was used last, in UTC."),
    }
    row = tuple(value for value, _, _ in columns.values())
    content = Rows({name: kind for name, (_, kind, _) in columns.items()}, [row])
    return Table("cache", content, {name: doc for name, (_, _, doc) in columns.items()})


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat(timespec="seconds") if moment else None


def _count(runs: int) -> str:
    return f"{runs:,} run" if runs == 1 else f"{runs:,} runs"
