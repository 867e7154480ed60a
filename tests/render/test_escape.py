"""Characters that don't print."""

import pytest

from tracekit.render.escape import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [bold] é 核 🙂", "plain [bold] é 核 🙂"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m\x7f", "\\x9b31m\\x7f"),
        ("a\u202eb\u200bc\u2028", "a\\u202eb\\u200bc\\u2028"),
        ("\\n", "\\n"),
    ],
)
def test_what_does_not_print_is_shown_as_its_escape(text: str, shown: str) -> None:
    assert visible(text) == shown
