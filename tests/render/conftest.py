"""One awkward answer that every format is tried on."""

import math

import polars as pl
import pytest

from tracekit.table import Note, Table


@pytest.fixture
def awkward() -> Table:
    frame = pl.DataFrame(
        {
            "kernel": [
                "void flash_fwd<Traits<128, 64>>(Params*)" + "x" * 120,
                "a|b\nc",
                "\x1b[31m[bold]é\u202e",
                "核心🙂",
                "",
                None,
            ],
            "total_ns": [1_500_000_000, -2_000, 0, None, 4_200_000, 7],
            "launches": pl.Series([2**100, -(2**127), 0, None, 1234, 1], dtype=pl.Int128),
            "share_frac": [0.412, 0.0001, math.nan, None, 0.0, -1.5],
            "ratio": [1.5, math.inf, 1e-9, None, 2e20, -0.0],
            "stream_id": [1234567, 2, 3, None, 4, 5],
            "dims": [[1, 2], [], None, [None], [-3], [0]],
            "facts": [{"p": 1, "q": "x|y"}, None, {"p": None, "q": "\x1b"}, {"p": 2, "q": ""}, None, None],
            "is_cold": [True, False, None, True, False, True],
        }
    )
    notes = (
        Note("exact", "total_ns counts every kernel"),
        Note("estimated", "launches | guessed\nfrom <graphs>"),
        Note("not_derivable", "ratio: the trace has no shapes"),
        Note("info", "steps 2 to 5"),
        Note("warning", "\x1b[31mred"),
    )
    return Table("awkward", frame, {name: f"What {name} says." for name in frame.columns}, notes)


@pytest.fixture
def empty(awkward: Table) -> Table:
    return Table("empty", awkward.frame.clear(), awkward.docs, awkward.notes[:1])
