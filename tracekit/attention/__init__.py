"""What work means: kernel families, places in the model, roles; its knowledge lies in TOML beside it.

`give_meaning(linked)` gives the finished tables of one trace.
"""

from tracekit.attention.batches import batches, calls_with_padding
from tracekit.attention.calls import with_lengths
from tracekit.attention.facts import Facts, read_facts
from tracekit.attention.tables import give_meaning, part_tables

__all__ = ["Facts", "batches", "calls_with_padding", "give_meaning", "part_tables", "read_facts", "with_lengths"]
