"""`tracekit capture`: the command of the room `capture`, which needs torch only when it records."""

from __future__ import annotations

from tracekit.capture.command import capture

__all__ = ["capture"]
