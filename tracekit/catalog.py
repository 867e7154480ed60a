"""The questions: what each asks, needs, takes and gives, read from the headers of the SQL files and of the analyses.

Owns the header format and the check whether a run can answer. It runs no question.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tracekit.analyses import hta_questions
from tracekit.analyses.headers import headers_of
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tracekit.store import Store
    from tracekit.table import Note, Rows, Status

_BIGINT = range(-(2**63), 2**63)
_BY_CODE = ("backend_verdict", "implementation_gain")
"""The analyses that answer a question of the store alone; a module, with the question's name, has the answer."""
_OPEN, _CLOSE = "-- /// query", "-- ///"


@dataclass(frozen=True)
class Param:
    """A parameter of a question: its default, whose type it has, and what it does.

    With `choices`, its text is a list of those words, separated by commas.
    """

    name: str
    default: int | float | str | bool
    doc: str
    choices: tuple[str, ...] = ()

    def read(self, value: object) -> int | float | str | bool:
        """Return a value given as text, as a list of choices or in the default's type. Raises TracekitError."""
        if isinstance(value, str):
            return self.parse(value)
        if self.choices and isinstance(value, (list, tuple)):
            return self.parse(",".join(map(str, value)))
        if type(value) is not type(self.default):
            kind = type(self.default).__name__
            raise TracekitError(f"parameter {self.name}: {value!r} is no {kind}", f"such as {self.default!r}")
        return value

    def parse(self, text: str) -> int | float | str | bool:
        """Turn the text of a command line into the type of the default. Raises TracekitError if it doesn't fit."""
        if isinstance(self.default, bool):
            if text.lower() in {"true", "yes", "1"}:
                return True
            if text.lower() in {"false", "no", "0"}:
                return False
            raise TracekitError(
                f"parameter {self.name}: {text!r} is neither true nor false", f"write -p {self.name}=true"
            )
        if self.choices and (unknown := [word for word in text.split(",") if word and word not in self.choices]):
            known = ", ".join(self.choices)
            raise TracekitError(f"parameter {self.name}: {unknown[0]!r} is none of {known}", "separate them by commas")
        try:
            value = type(self.default)(text)
            if isinstance(value, int) and value not in _BIGINT:
                raise ValueError(text)
        except ValueError as error:
            kind = "a whole number" if isinstance(self.default, int) else "a number"
            raise TracekitError(
                f"parameter {self.name}: {text!r} is not {kind}", f"write -p {self.name}={self.default}"
            ) from error
        return value


@dataclass(frozen=True)
class NoteRule:
    """A note that an answer carries if its SQL, which sees the same parameters, gives a value.

    Without SQL it is the value of `column` in the first row, which the question's own SQL gives beside what the header
    names: what it has computed anyway need not be computed again.
    """

    status: Status
    sql: str
    text: str
    column: str = ""


@dataclass(frozen=True)
class Question:
    """A question as its file states it.

    One without SQL is answered by code; if it needs more than tables, that is named in `beside`.
    """

    name: str
    summary: str
    requires: tuple[str, ...]
    params: Mapping[str, Param]
    columns: Mapping[str, str]
    notes: tuple[NoteRule, ...]
    sql: str
    beside: tuple[str, ...] = ()

    def values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return every parameter's value: those given, as text or in their type, and defaults for the rest."""
        if unknown := sorted(set(given) - set(self.params)):
            known = ", ".join(self.params) or "none"
            raise TracekitError(f"{self.name} has no parameter {unknown[0]!r}", f"it takes: {known}")
        return {
            name: param.read(given[name]) if name in given else param.default for name, param in self.params.items()
        }


def names() -> list[str]:
    """Return the names of all questions, sorted."""
    entries = files("tracekit.queries").iterdir()
    in_sql = (entry.name.removesuffix(".sql") for entry in entries if entry.name.endswith(".sql"))
    return sorted([*in_sql, *hta_questions.headers(), *_BY_CODE])


@cache
def question(name: str) -> Question:
    """Return a question by name. Raises TracekitError, with the nearest names, if there is none."""
    file = files("tracekit.queries").joinpath(f"{name}.sql")
    if name.isidentifier() and file.is_file():
        return parse(name, file.read_text(encoding="utf-8"))
    if name not in names():
        from difflib import get_close_matches

        near = get_close_matches(name, names(), n=2, cutoff=0.5)
        remedy = f"did you mean {' or '.join(near)}?" if near else "`tracekit query --list` names them all"
        raise TracekitError(f"there is no question {name!r}", remedy)
    if name in hta_questions.headers():
        header = hta_questions.headers()[name] | {"notes": ()}  # they depend on the trace, and come with the answer
        return replace(_question(name, header, ""), beside=hta_questions.NEEDS)
    return _question(name, headers_of(name)[name] | {"notes": ()}, "")


def analysis(name: str) -> Callable[..., tuple[Rows, tuple[Note, ...]]]:
    """Return what answers a question without SQL, of a store, its parameters' values and how to open another run."""
    found: Callable[..., tuple[Rows, tuple[Note, ...]]] = import_module(f"tracekit.analyses.{name}").answer
    return found


def parse(name: str, text: str) -> Question:
    """Read a question's header and SQL. Raises ValueError if the header is missing, not TOML or lacks a part."""
    lines = text.splitlines()
    if _OPEN not in lines or _CLOSE not in lines:
        message = f"{name}: no header between {_OPEN!r} and {_CLOSE!r}"
        raise ValueError(message)
    first, last = lines.index(_OPEN), lines.index(_CLOSE)
    header = tomllib.loads("\n".join(line.removeprefix("--").removeprefix(" ") for line in lines[first + 1 : last]))
    try:
        return _question(name, header, "\n".join(lines[last + 1 :]).strip())
    except KeyError as error:
        message = f"{name}: the header has no {error}"
        raise ValueError(message) from error


def _question(name: str, header: dict[str, Any], sql: str) -> Question:
    params = header.get("params", {}).items()
    return Question(
        name=name,
        summary=header["summary"],
        requires=tuple(header.get("requires", ())),
        params={
            key: Param(key, value["default"], _line(value["doc"]), tuple(value.get("choices", ())))
            for key, value in params
        },
        columns={key: _line(doc) for key, doc in header["columns"].items()},
        notes=tuple(
            NoteRule(rule["status"], rule.get("sql", ""), _line(rule["text"]), "" if "sql" in rule else rule["column"])
            for rule in header.get("notes", ())
        ),
        sql=sql,
    )


def _line(text: str) -> str:
    """Return a text that the header may break over lines as the one line it is."""
    return " ".join(text.split())


@cache
def _recording() -> dict[str, str]:
    return tomllib.loads(files("tracekit").joinpath("recording.toml").read_text(encoding="utf-8"))


def how_to_record(column: str) -> str:
    """Return what to record so that `table.column` holds values."""
    known = _recording()
    return known.get(column) or known[column.split(".")[0]]


def missing(asked: Question, store: Store) -> list[str]:
    """Return those columns a question requires that hold no value in this run."""
    return [column for column in asked.requires if not _holds(store, column)]


def _holds(store: Store, required: str) -> bool:
    table, _, column = required.partition(".")
    return store.holds(table, column)


def require(asked: Question, store: Store) -> None:
    """Raise TracekitError, saying what to record, if the run lacks what a question requires."""
    if lacking := missing(asked, store):
        ways = "; ".join(dict.fromkeys(how_to_record(column) for column in lacking))
        part, more = (
            ("", "")
            if store.selection.is_whole
            else (" in the selected part", "select more; where the whole run lacks it, ")
        )
        raise TracekitError(
            f"{asked.name} is not derivable from this run: it holds no {', '.join(lacking)}{part}",
            f"{more}it needs {ways}",
        )
