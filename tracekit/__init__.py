"""tracekit: offline answers from PyTorch profiler traces of attention workloads.

Names are resolved on first use, because `tracekit.capture` imports this package on machines that have
neither Polars nor DuckDB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.errors import TracekitError
    from tracekit.loading import load
    from tracekit.run import Run, open  # noqa: A004 - the library's verb
    from tracekit.table import Table

__version__ = "0.1.0"
__all__ = ["Run", "Table", "TracekitError", "__version__", "load", "open"]

_HOMES = {"Run": "run", "Table": "table", "TracekitError": "errors", "load": "loading", "open": "run"}


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        message = f"module 'tracekit' has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module

    value = getattr(import_module(f"tracekit.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the lazy names too."""
    return sorted({*globals(), *__all__})
