"""Recording on the machine that runs the model: the only room that may import torch.

Needs torch, click and the standard library; of the toolkit it knows the bundle and the errors alone. Names are
resolved on first use, since the command line imports this package where there is no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .facts import ModelFacts, StepFacts
    from .recorder import CutShort, Recorder, Recording

__all__ = ["CutShort", "ModelFacts", "Recorder", "Recording", "StepFacts"]

_HOMES = {
    "CutShort": "recorder",
    "ModelFacts": "facts",
    "Recorder": "recorder",
    "Recording": "recorder",
    "StepFacts": "facts",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module

    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the lazy names too."""
    return sorted({*globals(), *__all__})
