"""What work means: kernel families, places in the model, roles; its knowledge lies in TOML beside it.

`give_meaning(linked)` gives the finished tables of one trace.
"""

from tracekit.attention.facts import Facts, read_facts
from tracekit.attention.tables import give_meaning

__all__ = ["Facts", "give_meaning", "read_facts"]
