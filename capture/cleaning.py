"""A trace's text without the machine that it was made on.

Owns which strings of a trace name a machine. It changes nothing else: parsing and writing anew would round times,
which need more digits than a float has.
"""

from __future__ import annotations

import re
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

MACHINE_KEYS = (
    "host_name",
    "PT_PROFILER_JOB_NAME",
    "PT_PROFILER_JOB_VERSION",
    "PT_PROFILER_JOB_ATTEMPT_INDEX",
)
"""Entries that the profiler fills from the host and from environment variables."""

_MACHINE_ENTRY = re.compile(rf'\s*"(?:{"|".join(MACHINE_KEYS)})"\s*:\s*"(?:[^"\\]|\\.)*"\s*,')
_SLASHED = re.compile(r'"[^"\n]*/[^"\n]*"')
_START = r"(?<![\w.\])>-])"  # a slash after these divides, or is inside a relative path
_FRAME_FOLDER = re.compile(r'(?<=^")(?:[A-Za-z]:)?/.*/(?=[^/]*\(\d+\): )')
_FOLDERS = re.compile(rf"""{_START}(?:[A-Za-z]:)?/+(?:[^\s/"'<>|:,;()]+/+)*(?=[\w~.])""")


def local_prefixes(trace: Path) -> dict[str, str]:
    """Return what stands in a trace's paths for this machine, and what to write instead.

    torch shortens paths under `sys.path` by itself, but `traceName` never, and older versions shorten less. Packages
    end up as torch writes them: `torch/nn/functional.py`, `tracekit/capture/model.py`.
    """
    nameless = (str(Path.home()), str(Path.cwd()), tempfile.gettempdir(), str(trace.parent), *sys.path)
    libraries = [sysconfig.get_path(kind) for kind in ("purelib", "platlib", "stdlib", "platstdlib")]
    places = {
        **dict.fromkeys((*nameless, *libraries), ""),
        str(Path(errors.__file__).parent): "tracekit/",
        str(Path(__file__).parent): "tracekit/capture/",
    }
    known = {Path(place).absolute(): shown for place, shown in places.items() if place}
    known |= {path.resolve(): shown for path, shown in known.items()}
    return {f"{path.as_posix()}/": shown for path, shown in known.items() if path != Path(path.anchor)}


def clean(text: str, prefixes: Mapping[str, str]) -> str:
    """Return a trace's text without MACHINE_KEYS and absolute paths; every number keeps its digits.

    Known prefixes give way to what stands for them, longest first; of any other absolute path the last part stays.
    """
    longest_first = sorted(map(re.escape, prefixes), key=len, reverse=True)
    known = re.compile(f"{_START}(?:{'|'.join(longest_first) or '(?!)'})")

    @cache
    def shorten(string: str) -> str:
        string = known.sub(lambda found: prefixes[found[0]], string)
        return _FOLDERS.sub("", _FRAME_FOLDER.sub("", string))

    return _SLASHED.sub(lambda found: shorten(found[0]), _MACHINE_ENTRY.sub("", text))
