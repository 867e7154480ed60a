"""The doctor's rows as a page: the verdict, what is wrong, what is lacking, what to do next time, what is fine.

Owns the choice of what stands on the page. It judges nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.analyses.doctor import title, verdict
from tracekit.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

_DOCS = {"topic": "What the line is about.", "finding": "What was found.", "ask": "The question that says more."}

_Line = tuple[str, str, str | None]


def page(table: Table) -> Table:
    """Return the rows of `diagnose` as lines of topic, finding and question, the verdict first."""
    rows = table.frame
    lines = [("verdict", verdict(table), None), *_found(rows), *_lacking(rows), *_next(rows), *_quiet(rows)]
    frame = pl.DataFrame(lines, schema=dict.fromkeys(_DOCS, pl.String), orient="row")
    return Table(table.name, frame, _DOCS, table.notes[1:])


def _found(rows: pl.DataFrame) -> Iterator[_Line]:
    """Yield what makes numbers doubtful, in the order of the checks."""
    wrong = rows.filter((pl.col("bears_on") == "numbers") & pl.col("verdict").is_in(["bad", "warn"]))
    several = _has_several_ranks(rows)
    for row in wrong.iter_rows(named=True):
        ranks = f" (ranks {row['ranks']})" if several and row["ranks"] else ""
        yield row["verdict"], f"{title(row['check'])}{ranks}: {row['meaning'].rstrip('.')}.", row["ask"]


def _lacking(rows: pl.DataFrame) -> Iterator[_Line]:
    lacking = rows.filter((pl.col("bears_on") == "answers") & (pl.col("verdict") == "warn"))
    for check, meaning in lacking.unique("check", keep="first", maintain_order=True).select("check", "meaning").rows():
        yield "lacks", f"{title(check)}: {meaning.rstrip('.')}.", None


def _next(rows: pl.DataFrame) -> Iterator[_Line]:
    """Yield what to do at the next capture, each advice once, and the profiler's arguments in one line."""
    advice = list(dict.fromkeys(text for text in rows["next_capture"] if text))
    arguments = [text for text in advice if text.endswith("=True")]
    if arguments:
        yield "next time", f"profile with {', '.join(arguments)}.", None
    for text in advice:
        if text not in arguments:
            yield "next time", text[0].upper() + text[1:], None


def _quiet(rows: pl.DataFrame) -> Iterator[_Line]:
    """Yield what can't be told, by reason, and how much is fine."""
    by_reason: dict[str, list[str]] = {}
    for check, why in rows.filter(pl.col("verdict") == "unknown").select("check", "meaning").iter_rows():
        by_reason.setdefault(why, []).append(title(check))
    for why, titles in by_reason.items():
        yield "can't tell", f"{', '.join(titles)}: {why}.", None
    fine = set(rows["check"]) - set(rows.filter(pl.col("verdict") != "ok")["check"])
    if fine:
        yield "ok", f"{len(fine)} more checks; -f table shows every one.", None


def _has_several_ranks(rows: pl.DataFrame) -> bool:
    return rows["ranks"].n_unique() > 1 or any("-" in ranks or "," in ranks for ranks in rows["ranks"] if ranks)
