"""The tables of a run, ready to be asked: as the Parquet that a bundle holds, or as Polars frames.

Owns the way from a bundle's entries to tables. Every question goes through it, and most need no frame, so that
Polars, which is slow to import, is imported where there is one.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from typing import IO, TYPE_CHECKING

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    import polars as pl

    from tracekit import bundle

    Maker = Callable[[], pl.LazyFrame | pl.DataFrame]

_MAGIC = b"PAR1"
_AGAIN = "load the trace again"


class Tables(Mapping[str, "pl.LazyFrame"]):
    """Tables by name; each becomes a frame, or Parquet, when that is first asked for: a question asks for few."""

    def __init__(
        self,
        entries: Mapping[str, Mapping[str, bytes]],
        shown: str = "",
        made: Mapping[str, Maker] | None = None,
    ) -> None:
        """Hold a bundle's entries by table and name, and what makes further tables, each called once at most.

        `shown` is what messages call the bundle.
        """
        self._entries = entries
        self._shown = shown
        self._made = dict(made or {})
        self._frames: dict[str, pl.LazyFrame] = {}

    @classmethod
    def of(cls, frames: Mapping[str, pl.LazyFrame | pl.DataFrame]) -> Tables:
        """Return frames as tables."""
        return cls({}, made={name: _giving(frame) for name, frame in frames.items()})

    def also(self, name: str, maker: Maker) -> Tables:
        """Return these tables, and one to be made."""
        return Tables(self._entries, self._shown, self._made | {name: maker})

    def __getitem__(self, name: str) -> pl.LazyFrame:
        if name not in self._frames:
            entries = self._entries.get(name)
            self._frames[name] = _scan(entries, self._shown) if entries else self._made[name]().lazy()
        return self._frames[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._made

    def __iter__(self) -> Iterator[str]:
        return iter([*self._entries, *self._made])

    def __len__(self) -> int:
        return len(self._entries) + len(self._made)

    def count(self, name: str) -> int:
        """Return of how many files of Parquet a table consists. Raises KeyError if there is none of that name."""
        return 1 if name in self._made else len(self._entries[name])

    def parts(self, name: str) -> list[bytes]:
        """Return these files, in their order."""
        if name in self._entries:
            return list(self._entries[name].values())
        import polars as pl

        file = io.BytesIO()
        try:
            self[name].collect().write_parquet(file, compression="uncompressed")
        except pl.exceptions.PolarsError as error:
            raise TracekitError(f"{self._shown}: table {name} can't be made of the others", _AGAIN) from error
        return [file.getvalue()]

    def check(self, name: str) -> None:
        """Raise TracekitError, naming the entry, if a table can't be read as Parquet."""
        if name in self._entries:
            _scan(self._entries[name], self._shown)


def _giving(frame: pl.LazyFrame | pl.DataFrame) -> Maker:
    return lambda: frame


def tables_in(ready: bundle.Bundle) -> Tables:
    """Return a bundle's tables by name. Raises TracekitError if it has none, or an entry is damaged."""
    return held({entry: ready.read(entry) for entry in ready.names("tables/")}, str(ready.path))


def held(entries: Mapping[str, bytes], shown: str) -> Tables:
    """Return tables from the content of a bundle's entries; `shown` is what messages call it.

    Raises TracekitError if there are none, or an entry does not look like Parquet; one that does is read when it is
    asked for.
    """
    parts: dict[str, dict[str, bytes]] = {}
    for entry, content in entries.items():
        if not (content.startswith(_MAGIC) and content.endswith(_MAGIC)):
            raise _unreadable(entry, shown)
        table = entry.removeprefix("tables/").split("/")[0].removesuffix(".parquet")
        parts.setdefault(table, {})[entry] = content
    if "trace" not in parts:
        raise TracekitError(f"{shown} holds no tables", "load the trace again with this version of tracekit")
    return Tables(parts, shown)


def _unreadable(entry: str, shown: str) -> TracekitError:
    return TracekitError(f"{shown}: entry {entry} is no Parquet file", _AGAIN)


def _scan(entries: Mapping[str, bytes], shown: str) -> pl.LazyFrame:
    import polars as pl

    files: list[IO[bytes]] = [io.BytesIO(content) for content in entries.values()]
    frame = pl.scan_parquet(files)
    try:
        schema = frame.collect_schema()  # that of the first one
        if any(pl.read_parquet_schema(file) != schema for file in files[1:]):
            raise _differing(shown)
    except pl.exceptions.PolarsError as error:
        raise _damaged(entries, shown) from error
    return frame


def _damaged(entries: Mapping[str, bytes], shown: str) -> TracekitError:
    """Return what to say of the first entry that is no Parquet file."""
    import polars as pl

    for entry, content in entries.items():
        try:
            pl.read_parquet_schema(io.BytesIO(content))
        except pl.exceptions.PolarsError:
            return _unreadable(entry, shown)
    return _differing(shown)


def _differing(shown: str) -> TracekitError:
    return TracekitError(f"{shown}: the parts of a table differ", _AGAIN)
