"""Bytes to event tables: the only room that knows the profiler's file format.

`read_bytes(data, name)` gives `Events`; what belongs to what, and what it means, is found out by the rooms above.
Large files are read in pieces: `Cutter` cuts them, `decoded` reads one, in whatever process.
"""

from __future__ import annotations

from tracekit.ingest.container import Stream, opened
from tracekit.ingest.cut import PIECE_BYTES, Cutter, Piece
from tracekit.ingest.demangle import readable
from tracekit.ingest.dialect import recording
from tracekit.ingest.events import TABLES, Events, Frames, Problem, Recording
from tracekit.ingest.kineto import Counts, Decoded, assembled, decoded, finish
from tracekit.ingest.problems import problems

__all__ = [
    "PIECE_BYTES",
    "TABLES",
    "Counts",
    "Cutter",
    "Decoded",
    "Events",
    "Frames",
    "Piece",
    "Problem",
    "Recording",
    "Stream",
    "assembled",
    "decoded",
    "finish",
    "opened",
    "problems",
    "read_bytes",
    "readable",
    "recording",
]


def read_bytes(data: bytes, name: str, piece_bytes: int = PIECE_BYTES) -> Events:
    """Read one trace from bytes, plain or packed; `name` is what messages and the trace table call it.

    What is damaged is repaired or left out, and counted. Raises TracekitError if it is no trace, or nothing of it can
    be read.
    """
    with opened(data, name) as stream:
        cutter = Cutter(stream.blocks(piece_bytes), name, piece_bytes)
        parts = [decoded(piece) for piece in cutter.pieces()]
    if stream.damage:
        cutter.say_damaged(stream.damage, stream.text_bytes)
    found = finish(cutter, sum((part.counts for part in parts), Counts()), name)
    return assembled(parts, recording(cutter, found, name, stream.sha256), problems(found))
