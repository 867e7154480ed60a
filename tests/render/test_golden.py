"""One awkward answer through every text format, kept as the files that a user would get."""

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension

from tracekit.render import FORMATS, render
from tracekit.table import Table


class _File(SingleFileSnapshotExtension):
    file_extension = "txt"


@pytest.mark.parametrize("name", [name for name, known in FORMATS.items() if not known.is_binary])
def test_the_awkward_table(name: str, awkward: Table, snapshot: SnapshotAssertion) -> None:
    assert render(awkward, name) == snapshot(extension_class=_File)


@pytest.mark.parametrize("width", [80, 150])
def test_the_awkward_table_in_a_terminal(width: int, awkward: Table, snapshot: SnapshotAssertion) -> None:
    assert render(awkward, "table", width) == snapshot(extension_class=_File)
