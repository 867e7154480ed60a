"""What the plan for a large trace needs of each of its pieces, and the pieces themselves, set down on disk.

Owns `Outline` and the files between reading and linking. It decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.ingest import Counts, Piece, decoded
from tracekit.link import Glance, glance, modules_named
from tracekit.link.phases import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Times = NDArray[np.int64]

NONE = -(2**63)
"""What stands for no correlation, in figures that have no null."""
SAMPLE = 256
"""Of the times of a piece's rows, every so many-th is kept."""


@dataclass(frozen=True)
class Place:
    """Where a piece's rows lie on disk: how many of each kind there are, their first and last start in ns.

    `ends` has the last end of those kinds that last.
    """

    folder: Path
    number: int
    heights: Mapping[str, int]
    extents: Mapping[str, tuple[int, int]]
    ends: Mapping[str, int]

    def read(self, kind: str, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Return the piece's rows of a kind, in the order of the file, with all columns or some."""
        return pl.read_ipc(_path(self.folder, self.number, kind), columns=None if columns is None else list(columns))


@dataclass(frozen=True)
class Outline:
    """A piece of a trace in a few figures.

    `labels` gives the first call of each module, in ns as its rows count them, of those told by file and of others.
    Longer figures lie on disk: `times` is a sample of all starts; `busy` the merged spans of ops and nn.Modules;
    `forward` and `backward` the sequence numbers of such ops and their starts; `launches` and `device` the correlation
    and start of each row that has one (of device work of all rows, `NONE` where it has none).
    """

    place: Place
    counts: Counts
    glance: Glance
    labels: Mapping[bool, Mapping[str, int]]

    def times(self) -> Times:
        """Return the sample of starts, in order."""
        found: Times = self._figures("times")[0]
        return found

    def pair(self, name: str) -> tuple[Times, Times]:
        """Return one of the longer figures that are pairs of columns."""
        first, second = self._figures(name)
        return first, second

    def _figures(self, name: str) -> Times:
        with np.load(_path(self.place.folder, self.place.number, "figures").with_suffix(".npz")) as held:
            found: Times = np.asarray(held[name], dtype=np.int64)
            return found


def set_down(folder: Path, number: int, piece: Piece | tuple[Path, int, int], *, is_strict: bool = False) -> Outline:
    """Read a piece of text, given as such or as a place in a file, write its rows to `folder` and outline them.

    `is_strict` is for `decoded`.
    """
    if isinstance(piece, Piece):
        found = decoded(piece, is_strict=is_strict)
    else:
        path, start, length = piece
        with path.open("rb") as file:
            file.seek(start)
            found = decoded(Piece(start, file.read(length)), is_strict=is_strict)
    frames = found.frames
    for kind, frame in frames.items():
        if frame.height:
            frame.write_ipc(_path(folder, number, kind), compression="lz4")
    timed = [frame["ts_ns"].drop_nulls() for kind, frame in frames.items() if kind != "arrows"]
    heights = {kind: frame.height for kind, frame in frames.items()}
    extents = {kind: _extent(frame) for kind, frame in frames.items() if frame.height}
    forward, backward = _autograd(frames["ops"])
    np.savez(
        _path(folder, number, "figures").with_suffix(".npz"),
        times=np.sort(np.concatenate([times.to_numpy() for times in timed]))[::SAMPLE][None],
        busy=np.stack(_busy(frames["ops"], frames["frames"])),
        forward=np.stack(forward),
        backward=np.stack(backward),
        launches=np.stack(_correlated(frames["runtime"].drop_nulls("correlation"))),
        device=np.stack(_correlated(frames["device"])),
    )
    ends = {kind: _end(frame) for kind, frame in frames.items() if frame.height and "dur_ns" in frame.columns}
    place = Place(folder, number, heights, extents, ends)
    first = frames["frames"].group_by("name").agg(pl.col("ts_ns").min())
    labels = {by_file: _labels(first, by_file=by_file) for by_file in (False, True)}
    return Outline(place, found.counts, glance(frames), labels)


def _path(folder: Path, number: int, kind: str) -> Path:
    return folder / f"{number:06}.{kind}.arrow"


def _extent(frame: pl.DataFrame) -> tuple[int, int]:
    """Return first and last start; rows without one, kept as they are, belong to the beginning."""
    starts = frame["ts_ns"].fill_null(-(2**63)).to_numpy()
    return int(starts.min()), int(starts.max())


def _end(frame: pl.DataFrame) -> int:
    starts, durations = (frame[name].fill_null(0).to_numpy() for name in ("ts_ns", "dur_ns"))
    return int((starts + durations).max())


def _correlated(rows: pl.DataFrame) -> tuple[Times, Times]:
    return rows["correlation"].fill_null(NONE).to_numpy(), rows["ts_ns"].to_numpy()


def _busy(ops: pl.DataFrame, frames: pl.DataFrame) -> tuple[Times, Times]:
    rows = pl.concat(
        [
            ops.filter(~pl.col("is_annotation")).select("ts_ns", "dur_ns"),
            frames.filter(pl.col("name").str.starts_with("nn.Module: ")).select("ts_ns", "dur_ns"),
        ]
    )
    return united(rows["ts_ns"].to_numpy(), (rows["ts_ns"] + rows["dur_ns"]).to_numpy())


def united(starts: Times, ends: Times) -> tuple[Times, Times]:
    """Return spans of time merged where they overlap, in order."""
    if not len(starts):
        return starts, ends
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    is_new = np.concatenate(([True], starts[1:] > reach[:-1]))
    is_last = np.concatenate((is_new[1:], [True]))
    return starts[is_new], reach[is_last]


def _autograd(ops: pl.DataFrame) -> tuple[tuple[Times, Times], tuple[Times, Times]]:
    numbered = ops.filter(pl.col("sequence_number").is_not_null())
    names = [name for name in numbered["name"].unique().to_list() if kind_of(name, is_annotation=False) == "autograd"]
    is_backward = pl.col("name").is_in(names)

    def pair(rows: pl.DataFrame) -> tuple[Times, Times]:
        return rows["sequence_number"].to_numpy(), rows["ts_ns"].to_numpy()

    return pair(numbered.filter(~is_backward)), pair(numbered.filter(is_backward))


def _labels(first: pl.DataFrame, *, by_file: bool) -> dict[str, int]:
    """Return the first call of each module, given that of each name."""
    named = modules_named(first["name"], by_file=by_file)
    found: dict[str, int] = {}
    for name, time in first.filter(pl.col("name").is_in(list(named))).iter_rows():
        label = named[name].label
        found[label] = min(time, found.get(label, time))
    return found
