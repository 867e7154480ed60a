"""Strings that can't harm a terminal.

Owns how a character that doesn't print is shown. Names in a trace come from whoever made the trace, so
nothing of theirs reaches a screen, or a page meant to be read, without passing through here.
"""

from __future__ import annotations


def visible(text: str) -> str:
    r"""Return a string in one line, with every character that doesn't print as a Python escape: `\n`, `\x1b`.

    This covers terminal control in both encodings (ESC and the C1 codes), direction overrides, zero-width
    characters and separators of lines.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
