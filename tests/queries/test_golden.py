"""Every question on every sample trace, kept as the files that a user would get."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from syrupy.extensions.single_file import SingleFileSnapshotExtension

import tracekit
from tracekit import catalog
from tracekit.errors import TracekitError
from tracekit.render import notes_text, render

if TYPE_CHECKING:
    from collections.abc import Iterator

    from syrupy.assertion import SnapshotAssertion

    from tracekit.run import Run

SAMPLES = sorted((Path(__file__).parents[2] / "sample_traces").glob("*.tkb"))


class _File(SingleFileSnapshotExtension):
    file_extension = "txt"


@pytest.fixture(scope="module", params=SAMPLES, ids=lambda path: path.stem)
def sample(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Open each sample in turn; pytest runs all tests on it before it opens the next."""
    with tracekit.open(request.param) as opened:
        yield opened


@pytest.mark.parametrize("name", [name for name in catalog.names() if not catalog.question(name).beside])
def test_a_question_on_a_sample(name: str, sample: Run, snapshot: SnapshotAssertion) -> None:
    try:
        answer = sample.query(name)
    except TracekitError as error:
        found = f"{error}\n".encode()
    else:
        found = render(answer, "csv") + f"\n{notes_text(answer)}".encode()
    assert found == snapshot(extension_class=_File)


def test_the_page_about_a_sample(sample: Run, snapshot: SnapshotAssertion) -> None:
    assert render(sample.summary(), "page") == snapshot(extension_class=_File)
