"""DuckDB, without the Python over it that builds relations, which nothing here does.

Owns how the engine is imported. The package `duckdb` is its extension module `_duckdb` and that Python, whose import
takes 50 ms more, a fifth of a small question's time: it is imported only where rows become a frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb
else:
    try:
        import _duckdb as duckdb
    except ImportError:  # another build of DuckDB, in which all is one
        import duckdb

__all__ = ["duckdb"]
