"""What work means: kernel families, places in the model, roles; its knowledge lies in TOML beside it.

`give_meaning(linked)` gives the finished tables of one trace.
"""

from tracekit.attention.tables import give_meaning

__all__ = ["give_meaning"]
