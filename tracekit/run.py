"""A run, opened: the library's face.

Owns the way from a path and a question to a Table. The command line calls nothing else.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tracekit import catalog, loading
from tracekit.analyses import hta_questions
from tracekit.analyses.doctor import diagnose, short, verdict
from tracekit.analyses.doctor_scans import QUICKLY_READ
from tracekit.attention.devices.devices import read_spec
from tracekit.attention.devices.lookups import lookups
from tracekit.errors import TracekitError
from tracekit.loading.opening import Tables
from tracekit.store import PHASES, Limits, Selection, Store, TooMuchMemory, hearing
from tracekit.table import Note, Rows, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import polars as pl

    from tracekit.analyses.graph import Graph
    from tracekit.attention.devices.devices import Spec


_SOON_SECONDS = 0.05
"""So often what must end is told so."""
_WORTH_SAYING = 0.01
"""Shares of device time below this are not worth a note on every answer."""


class Run:
    """One run: answers questions and SQL about it. Use it as a context manager, or call `close`."""

    def __init__(
        self,
        name: str,
        tables: Mapping[str, pl.LazyFrame],
        selection: Selection,
        limits: Limits,
        path: Path | None = None,
        spec: Spec | None = None,
        tables_of: Callable[[Path], Mapping[str, pl.LazyFrame]] = loading.open_tables,
    ) -> None:
        """Hold a run's tables by name; `open` makes one from a path, where the traces themselves may lie too.

        `spec` has the peaks of its device, instead of those that are known. `tables_of` opens runs to compare with.
        """
        self.name = name
        self._path = path
        self._limits = limits
        self._tables_of = tables_of
        self._tables = tables
        held = tables if isinstance(tables, Tables) else Tables.of(tables)
        if "product" not in held:
            held = held.also("product", partial(_products, held))
        self._store = Store(held, selection, limits, lookups(spec))
        self._whole = self._store
        if selection.steps or selection.phases:
            self._whole = Store(held, Selection(ranks=selection.ranks), limits, lookups(spec))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the memory back."""
        self._store.close()
        if self._whole is not self._store:
            self._whole.close()

    @property
    def tables(self) -> dict[str, pl.LazyFrame]:
        """The tables by name, as Polars frames, the selection not applied."""
        import polars as pl

        return {name: frame.cast({pl.Categorical: pl.String}) for name, frame in self._tables.items()}

    def query(self, question: str, **params: Any) -> Table:
        """Answer a question by name, with its parameters as text or in their own types.

        Raises TracekitError if there is no such question or parameter, or the run lacks what it requires.
        """
        asked = catalog.question(question)
        values = asked.values(params)
        if asked.beside:
            return self._by_hta(asked, values)
        catalog.require(asked, self._store)
        if not asked.sql:
            frame, said = catalog.analysis(question)(self._store, values, self._other)
            return Table(asked.name, frame, dict(asked.columns), (*said, *self._run_notes()))
        beside = [_used(rule, values) for rule in asked.notes if rule.sql]
        with self._noting() as of_run:
            content, found = self._store.beside(asked.sql, values, beside, asked.columns)
        notes = (*_rule_notes(asked, content, iter(found)), *of_run())
        if not content.height:
            notes = (Note("info", "Nothing in the run, or in the selected part of it, matches."), *notes)
        return Table(asked.name, content.select(*asked.columns), dict(asked.columns), notes)

    def _other(self, path: Path) -> Store:
        """Open another run whole, to compare with. Raises TracekitError if it is none."""
        return Store(self._tables_of(path), limits=self._limits)

    def _by_hta(self, asked: catalog.Question, values: Mapping[str, Any]) -> Table:
        import polars as pl

        chosen = self._store.selection
        if chosen.steps or chosen.phases:
            problem = f"{asked.name} takes no --steps and no --phase, since HTA reads whole traces"
            raise TracekitError(problem, "leave them out")
        catalog.require(asked, self._store)
        is_selected = pl.col("rank").is_in(chosen.ranks) if chosen.ranks else pl.lit(value=True)
        columns = ("rank", "source_name", "time_resolution_ns", is_selected.alias("is_selected"))
        traces = self._tables["trace"].sort("trace_id").select(columns).collect()
        frame, notes = hta_questions.answer(asked.name, self._path, traces, values, self._limits.seconds)
        return Table(asked.name, frame, dict(asked.columns), (*notes, *self._run_notes()))

    def sql(self, text: str) -> Table:
        """Answer one SELECT. Raises TracekitError if it is anything else, or fails."""
        content = self._store.ask(text)
        notes = () if content.height else (Note("info", "The query gives no rows."),)
        return Table("sql", content, dict.fromkeys(content.columns, ""), notes)

    def questions(self) -> Table:
        """List every question: whether this run can answer it, and what to record where it can't."""
        rows = []
        for name in catalog.names():
            asked = catalog.question(name)
            ways = [catalog.how_to_record(column) for column in catalog.missing(asked, self._store)]
            ways += hta_questions.lacking(self._path) if asked.beside else []
            rows.append((name, asked.summary, not ways, "; ".join(dict.fromkeys(ways)) or None))
        docs = {
            "question": "Name to ask by.",
            "summary": "What it answers.",
            "answerable": "Whether this run holds what it requires.",
            "needs": "What to record or install where it does not.",
        }
        types = {"question": "String", "summary": "String", "answerable": "Boolean", "needs": "String"}
        return Table("questions", Rows(types, rows), docs, self._run_notes())

    def summary(self) -> Table:
        """Say on one page where the run's time and memory go."""
        from tracekit.analyses.summary import summarize

        table = summarize(self._store, self.name, verdict(self._diagnosis))
        return Table(table.name, table.content, table.docs, (*table.notes, *self._run_notes()))

    def doctor(self) -> Table:
        """Say, a row a check, whether the recording is fit to judge by, whatever steps and phases are selected."""
        return self._diagnosis

    def graph(
        self, module: str | None = None, *, nth: int = 0, op: int | None = None, call: int | None = None
    ) -> Graph:
        """Return the computation of a module's call, of an op or of an attention call, by their numbers.

        By default it is that of the first attention module. Raises TracekitError if the run has not what is asked for.
        """
        from tracekit.analyses.graph import of_call, of_module, of_op

        if call is not None:
            return of_call(self._store, call)
        return of_op(self._store, op) if op is not None else of_module(self._store, module, nth)

    @cached_property
    def _diagnosis(self) -> Table:
        requiring: dict[str, list[str]] = {}
        for name in (name for name in catalog.names() if catalog.question(name).sql):
            for column in catalog.question(name).requires:
                requiring.setdefault(column, []).append(name)
        lacking = {column: names for column, names in requiring.items() if not self._whole.holds(*column.split(".", 1))}
        return diagnose(self._whole, lacking)

    @cached_property
    def _quality_notes(self) -> tuple[Note, ...]:
        return short(self._whole)

    def _run_notes(self) -> tuple[Note, ...]:
        """Return what every answer about this run has to say."""
        return (*self._quality_notes, *self._selection_notes())

    @contextmanager
    def _noting(self) -> Iterator[Callable[[], tuple[Note, ...]]]:
        """Find the notes of the run beside what is asked inside; what it gives returns them."""

        def notes() -> tuple[Note, ...]:
            try:
                return said.result()
            except TooMuchMemory:  # there is room for them when the question has been answered
                return self._run_notes()

        self._whole.prepare(*QUICKLY_READ)
        with hearing() as heard, ThreadPoolExecutor(1) as pool:
            said = pool.submit(self._run_notes)
            try:
                yield notes
                while wait([said], _SOON_SECONDS).not_done and not heard:
                    pass
                if heard:
                    raise KeyboardInterrupt
            except BaseException:
                while wait([said], _SOON_SECONDS).not_done:
                    self._store.interrupt()
                    self._whole.interrupt()
                raise

    def _selection_notes(self) -> Iterator[Note]:
        """Yield what --steps leaves out of the device's time."""
        if not self._store.selection.steps:
            return
        left_out = self._store.scalar(
            "select sum(dur_ns) filter (where step_id is null) / nullif(sum(dur_ns), 0) from kernel_of_any_step"
        )
        if left_out is not None and left_out >= _WORTH_SAYING:
            text = f"{100 * left_out:.1f} % of device time was launched in no recorded step"
            yield Note("warning", f"{text}: --steps leaves it out, but for what ran in a step's window.")


def _products(tables: Tables) -> pl.DataFrame:
    from tracekit.attention.devices.products import products_of_run

    return products_of_run(tables)


def _used(rule: catalog.NoteRule, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a note's SQL with those parameters of its question that it speaks of."""
    return rule.sql, {name: value for name, value in values.items() if re.search(rf"\${name}\b", rule.sql)}


def _rule_notes(
    asked: catalog.Question, answer: Rows | pl.DataFrame, found: Iterator[tuple[Any, ...] | None]
) -> Iterator[Note]:
    for rule in asked.notes:
        told = next(found) if rule.sql else next(answer.select(rule.column).iter_rows(), None)
        if told is not None and told[0] is not None:
            yield Note(rule.status, rule.text.format(*told))


def open(  # noqa: A001 - the library's verb
    path: Path | str,
    *,
    steps: int | Iterable[int] = (),
    ranks: int | Iterable[int] = (),
    phases: str | Iterable[str] = (),
    limits: Limits | None = None,
    say: Callable[[str], None] = lambda _: None,
    workers: int = 1,
    settings: loading.Settings | None = None,
    device_spec: Path | str | None = None,
) -> Run:
    """Open a run: a bundle, or a raw trace or a folder of ranks, which is loaded once and cached.

    `steps`, `ranks` and `phases` select the part that questions see; `say` hears of slow work; `workers` and
    `settings` say how a trace is loaded, as for `tracekit.load`. `device_spec` names a TOML file with the peaks of the
    device, instead of those that are known. Raises TracekitError if the path is no run, the selection names what the
    run has not, or that file holds no peaks.
    """
    chosen = Selection(
        frozenset([steps] if isinstance(steps, int) else steps),
        frozenset([ranks] if isinstance(ranks, int) else ranks),
        frozenset([phases] if isinstance(phases, str) else phases),
    )
    if unknown := sorted(chosen.phases - set(PHASES)):
        raise TracekitError(f"there is no phase {unknown[0]!r}", f"choose from {', '.join(PHASES)}")
    spec = None if device_spec is None else read_spec(Path(device_spec))
    path = Path(path)

    def tables_of(path: Path) -> Mapping[str, pl.LazyFrame]:
        return loading.open_tables(path, say, workers, settings)

    return Run(path.name, tables_of(path), chosen, limits or Limits(), path, spec, tables_of)
