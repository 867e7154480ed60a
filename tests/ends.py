"""Processes that are ended at an exact point of writing a bundle, as a crash or `kill -9` ends them.

A process killed after some milliseconds is met in the middle of a write on one machine and after it on the next.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

needs_signals = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there are no signals here")

BEFORE_NAMED = """
import os, signal, sys
def watch(event, words):
    if event == "os.rename" and ".tkb.tmp-" in str(words[0]):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
"""
AFTER_NAMED = """
import os, signal, sys
folders = []
def watch(event, words):
    if event == "os.rename" and ".tkb.tmp-" in str(words[0]):
        folders.append(os.path.dirname(words[1]))
    if event == "open" and str(words[0]) in folders:  # to make the new name outlast a power cut
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
"""
_AT_BYTE = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
def watch(event, words):
    if event == "open" and ".tkb.tmp-" in str(words[0]):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (COUNT, COUNT))
sys.addaudithook(watch)
"""


def at_byte(count: int) -> str:
    """Return code that has the process ended within the call that writes past so many bytes of a bundle."""
    return _AT_BYTE.replace("COUNT", str(count))


def points(size: int) -> list[str]:
    """Return code for ends all over the writing of a bundle of that size, the last before it has its name."""
    return [*(at_byte(count) for count in (0, 1, size // 3, size // 2, size - 1)), BEFORE_NAMED]


def ended(how: str, code: str, *words: str | Path) -> None:
    """Run code in a process that is ended so, and see that it was."""
    done = subprocess.run(
        [sys.executable, "-c", how + code, *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in {-signal.SIGKILL, -signal.SIGXFSZ}, done.stderr
