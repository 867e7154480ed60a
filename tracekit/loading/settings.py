"""How traces are to be loaded.

Owns the choices and their defaults; it is imported before anything that is slow to import.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WHOLE_BYTES = 2**27
"""Traces of up to so much text are read at once, in one process: a pool would cost more than it saves."""
PART_ROWS = 150_000
"""Rows of one part of a larger trace, about. More parts cost more files in the bundle, larger ones more memory."""


@dataclass(frozen=True)
class Settings:
    """How to load: refuse what must be repaired, believe archives of any ratio, and where to say how far it is.

    `whole_bytes` and `part_rows` are the sizes up to which traces are read at once, and of the parts of larger ones;
    `progress` hears the name of a trace and the share of it that is done. `graph_captures` are traces in which graphs
    were captured that the traces replay.
    """

    is_strict: bool = False
    trust_archive: bool = False
    whole_bytes: int = WHOLE_BYTES
    part_rows: int = PART_ROWS
    progress: Callable[[str, float], None] = lambda _name, _share: None
    graph_captures: tuple[Path, ...] = ()
