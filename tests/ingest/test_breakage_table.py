"""The table of breakages: nothing is lost beyond what is broken, and the count of that can be other than 0."""

from __future__ import annotations

import json

import pytest

from tests.build import Event, kernel, launch, memory, op, step
from tests.ingest import breakage_table
from tests.ingest.breakage_table import OTHERS, SAMPLE, Case, measure
from tests.ingest.breakages import BREAKAGES, compact, pretty, real_events


def by_hand() -> list[bytes]:
    rows: list[Event] = [step(1, 0, 900)]
    for number in range(16):
        at = 20 * number
        rows += [op("aten::mm", at, 9, Input_Dims=[[2, 3]]), launch(at + 1, number), kernel("gemm", at + 5, 9, number)]
    rows.append(memory(500, 64, 512, 512))
    return [pretty(row) if number % 3 else compact(row) for number, row in enumerate(rows)]


@pytest.fixture(scope="module")
def samples() -> list[list[bytes]]:
    return [by_hand(), real_events(SAMPLE)]


@pytest.mark.parametrize("kind", [*BREAKAGES, *OTHERS])
def test_nothing_is_lost_beyond_what_is_broken(kind: str, samples: list[list[bytes]]) -> None:
    found = measure(kind, samples, 4)
    assert (found.cases, found.lost_beyond) == (4, 0)


def test_what_is_lost_beyond_is_counted(samples: list[list[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    events = [json.dumps(op("aten::add", 10 * number, 5)).encode() for number in range(3)]
    told = Case(b"[" + b",".join(events[:1]) + b"]", events, 0)
    monkeypatch.setattr(breakage_table, "case", lambda *_: told)
    assert measure("any", samples, 5).lost_beyond == 10
    monkeypatch.setattr(breakage_table, "case", lambda *_: told._replace(data=b"no trace"))
    assert measure("any", samples, 5).lost_beyond == 15
