"""Whether a process that left something behind is still there.

Owns that question only, which has another answer on each system.
"""

from __future__ import annotations

import os


def is_alive(process: int) -> bool:
    """Return whether a process of this number may be running on this machine."""
    if os.name == "nt":  # there, signal 0 is Ctrl-C
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is somebody else's
        return True
    return True
