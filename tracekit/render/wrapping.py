"""Sentences broken into lines of so many terminal cells, as Rich breaks them.

Owns Rich's console, which is slow to import: imported only where a width is given.
"""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

_CONSOLE = Console(width=120, color_system=None, force_terminal=False)
"""Rich's wrapping asks for a console; nothing is printed to it."""


def wrapped(text: str, width: int) -> list[str]:
    """Return a text as lines of at most `width` cells; a word that is longer is broken."""
    return [line.plain.rstrip() for line in Text(text).wrap(_CONSOLE, width, overflow="fold")]
