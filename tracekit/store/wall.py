"""The wall around a run: what SQL is let in, and what it may use.

Owns the settings that shut DuckDB in, the check that a text is one SELECT, and the watch over time and memory.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.errors import TracekitError
from tracekit.store.engine import duckdb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tracekit.store.source import Source

    Answer = tuple[duckdb.DuckDBPyConnection, Callable[[], Any]]
    """A connection, and what gives rows by it."""

_SHUT = (
    # What these hold by default tells of the machine: its user's name, its proxy's password, where it stands.
    "set secret_directory = ''",
    "set allow_persistent_secrets = false",
    "set http_proxy = ''",
    "set http_proxy_username = ''",
    "set http_proxy_password = ''",
    "set timezone = 'UTC'",
    "set arrow_large_buffer_size = true",
    "set temp_directory = ''",
    "set python_enable_replacements = false",
    "set autoload_known_extensions = false",
    "set autoinstall_known_extensions = false",
    "set parquet_metadata_cache = true",
)
_LOCK = ("set enable_external_access = false", "set lock_configuration = true")
_LONGEST_TEXT, _DEEPEST_TEXT, _BATCH_ROWS = 100_000, 200, 10_000
_WATCH_SECONDS, _GRACE_SECONDS, _SLACK_BYTES = 0.05, 2.0, 2**28
_UNIT_BYTES = {
    f"{prefix}{end}": base**power for power, prefix in enumerate("kmgt", 1) for end, base in (("b", 1000), ("ib", 1024))
}
_OPENING, _CLOSING = b"([{", b")]}"


@dataclass(frozen=True)
class Limits:
    """What a question may use: seconds of time and bytes of memory, in DuckDB's words (`2GB`).

    The engine is asked to stop at its limits, which it can't inside one call of a function (`repeat('x', 1e9)`).
    `give_up` is then told; a program that has nothing else to do may end there.
    """

    seconds: float = 60.0
    memory: str = "4GB"
    give_up: Callable[[TracekitError], None] = lambda _: None


_begun: list[Future[duckdb.DuckDBPyConnection]] = []


def get_ready() -> None:
    """Begin to make a database beside whatever is done next, such as an import, for `connect` to take."""
    pool = ThreadPoolExecutor(1)
    _begun.append(pool.submit(_new_database))
    pool.shutdown(wait=False)


def connect(limits: Limits, source: Source) -> duckdb.DuckDBPyConnection:
    """Return a database in memory, shut in, that keeps to its limit and reads these files alone.

    Raises TracekitError if the limit is no amount of memory.
    """
    unfit = TracekitError(f"{limits.memory!r} is no amount of memory", "write it as 512MB or 4GB")
    if not memory_bytes(limits.memory):
        raise unfit
    con = _begun.pop().result() if _begun else _new_database()
    try:
        con.execute(f"set memory_limit = '{limits.memory}'")
    except duckdb.Error as error:
        raise unfit from error
    source.let_in(con)
    for setting in _LOCK:
        con.execute(setting)
    return con


def _new_database() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(":memory:")
    for setting in _SHUT:
        con.execute(setting)
    return con


def memory_bytes(memory: str) -> int:
    """Return an amount of memory as a number, 0 if the text is none."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s?([kmgt]i?b)", memory.lower(), re.ASCII)
    return int(float(match[1]) * _UNIT_BYTES[match[2]]) if match else 0


def held(limits: Limits, answers: Sequence[Answer]) -> list[Any]:
    """Return what each of some answers gives, all side by side in threads: this one watches, and hears Ctrl-C.

    Each has a connection of its own. The engine is interrupted from when the time is over until it obeys, and given
    up, once, where it does not.
    """
    end, most = time.monotonic() + limits.seconds, _peak_bytes() + 2 * memory_bytes(limits.memory) + _SLACK_BYTES
    is_given_up = False
    with hearing() as heard, ThreadPoolExecutor(len(answers)) as pool:
        asked = [pool.submit(answer) for _, answer in answers]
        while not all(one.done() for one in asked):
            try:
                wait(asked, min(_WATCH_SECONDS, limits.seconds))
            except KeyboardInterrupt:  # the program hears Ctrl-C in its own way
                heard.append(signal.SIGINT)
            if heard:
                end = min(end, time.monotonic())
            late, is_huge = time.monotonic() - end, _peak_bytes() > most
            if late > 0 or heard:
                for con, _ in answers:
                    con.interrupt()
            if not is_given_up and (is_huge or late > _GRACE_SECONDS):
                is_given_up = True
                limits.give_up(TooMuchMemory(limits) if is_huge else _too_much_time(limits))
    if heard:
        raise KeyboardInterrupt
    return [one.result() for one in asked]


@contextmanager
def hearing() -> Iterator[list[int]]:
    """Give a list that a Ctrl-C is put on, instead of an exception that may break what threads wait by.

    Whoever waits looks at it; one inside another has the same list. Where the program hears Ctrl-C in its own way, and
    in threads that never hear it, it stays empty.
    """
    if threading.current_thread() is not threading.main_thread():
        yield []
    elif _listening:
        yield _listening[0]
    elif signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield []
    else:
        heard: list[int] = []
        _listening.append(heard)
        signal.signal(signal.SIGINT, lambda number, _frame: heard.append(number))
        try:
            yield heard
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _listening.clear()


_listening: list[list[int]] = []
"""The list that the main thread has, while it has one."""


def _peak_bytes() -> int:
    """Return the most memory that this process has held so far, 0 where the system does not say."""
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _too_much_time(limits: Limits) -> TracekitError:
    problem = f"the query ran longer than {limits.seconds:g} s and was stopped"
    return TracekitError(problem, "ask for less, or raise --timeout")


class TooMuchMemory(TracekitError):  # noqa: N818 - it says what is too much
    """A query needs more memory than it may."""

    def __init__(self, limits: Limits) -> None:
        """Name the limit."""
        super().__init__(
            f"the query needs more than {limits.memory} of memory", "ask for less, or raise --memory-limit"
        )


def fault(said: str, limits: Limits) -> TracekitError:
    """Return the fault that DuckDB's words tell of."""
    if said.startswith("INTERRUPT"):
        return _too_much_time(limits)
    if said.startswith("Out of Memory"):
        return TooMuchMemory(limits)
    outside = said.startswith("Permission")
    remedy = "a query sees the run's tables alone" if outside else "`tracekit schema` lists tables and columns"
    return TracekitError(f"SQL: {_first_lines(said)}", remedy)


def one_select(sql: str, con: duckdb.DuckDBPyConnection) -> str:
    """Return the text of the one SELECT in `sql`. Raises TracekitError if it holds anything else."""
    _check_shape(sql)
    try:
        statements: Sequence[Any] = con.extract_statements(sql)
    except duckdb.Error as error:
        remedy = "a question is a name of `tracekit query --list`, or one SELECT"
        raise TracekitError(f"SQL: {_first_lines(str(error))}", remedy) from error
    if len(statements) != 1:
        raise TracekitError(f"the SQL holds {len(statements)} statements", "give exactly one SELECT")
    kind = _kind(statements[0])
    if kind != "SELECT":
        remedy = "name the values: `pivot ... on column in (...)`" if kind == "MULTI" else "a bundle can only be read"
        raise TracekitError(f"the SQL is no SELECT but {kind}", remedy)
    text: str = statements[0].query
    data = text.encode()
    end = next((at for at, kind in duckdb.tokenize(text) if _is_sign(kind) and data[at] in b";"), len(data))
    return data[:end].decode()


def _kind(statement: Any) -> str:
    try:
        kind: str = statement.type.name
    except ValueError:  # DuckDB's Python package has no name for some of its statements
        return "a command"
    return kind


def _check_shape(sql: str) -> None:
    """Raise TracekitError for a text that could keep the parser, which no limit reaches, from ever coming back."""
    if len(sql) > _LONGEST_TEXT:
        raise TracekitError(f"the SQL is longer than {_LONGEST_TEXT:,} characters", "ask for less at once")
    data = sql.encode(errors="replace")
    if data.decode() != sql or "\0" in sql:
        raise TracekitError("the SQL holds characters that are no text", "write it in UTF-8")
    depth = signs = 0
    for at, kind in duckdb.tokenize(sql):
        if _is_sign(kind):
            depth += (data[at] in _OPENING) - (data[at] in _CLOSING)
            signs += 1
        elif kind != duckdb.token_type.comment:
            signs = 0
        if max(depth, signs) > _DEEPEST_TEXT:
            raise TracekitError(f"the SQL is nested more than {_DEEPEST_TEXT} deep", "ask for less at once")


def _is_sign(kind: duckdb.token_type) -> bool:
    return kind == duckdb.token_type.operator


def _first_lines(said: str) -> str:
    """Return an engine's message without its pointer into the text."""
    return re.sub(r"\s+", " ", said.split("\n\nLINE ")[0].split("\nLINE ")[0]).strip()
