"""The commands that are measured: loads of a trace, and questions about the bundle made of it.

Owns how each tool is called, what it can take, and whether it is here. It measures nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
TRACEKIT = "tracekit"
NAMES = (TRACEKIT, "tracekit --workers 1", "HTA", "json", "orjson")
ENV = {
    "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
    "PYTHONDONTWRITEBYTECODE": "",
}
"""What tracekit's environment needs: its code is that of this checkout, compiled once, as pip compiles what it installs."""
_WHOLE_LIMIT = 2 * 10**9
_TIMES_THE_FILE = 5
"""About how much memory a tool needs that holds a trace as Python objects, or as pandas' columns, a byte of file."""
_HTA = """
import logging, sys
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
TraceAnalysis(trace_dir=sys.argv[1])
"""
_JSON = "import json, sys; json.load(open(sys.argv[1], encoding='utf-8'))"
_ORJSON = "import orjson, pathlib, sys; orjson.loads(pathlib.Path(sys.argv[1]).read_bytes())"


@dataclass(frozen=True)
class Tool:
    """One way to load a trace: the command, and the bundle that it writes, if any."""

    name: str
    command: Sequence[str]
    bundle: Path | None = None

    @property
    def env(self) -> dict[str, str]:
        """Return what its environment needs besides this one."""
        return ENV if self.bundle else {}


def tracekit(*words: str | Path) -> list[str]:
    """Return the command that runs tracekit with these words."""
    return [sys.executable, "-m", "tracekit", *map(str, words)]


def tools(
    trace: Path, size: int, folder: Path, hta_python: str, without: Sequence[str]
) -> tuple[list[Tool], list[str]]:
    """Return the tools that can load a trace, bundles to go to `folder`, and a line for each that can't, and why."""
    one, more = folder / "one.tkb", folder / "more.tkb"
    every = (
        Tool(NAMES[0], tracekit("load", trace, "-o", more, "--force"), more),
        Tool(NAMES[1], tracekit("load", trace, "-o", one, "--force", "--workers", "1"), one),
        Tool(NAMES[2], [hta_python, "-c", _HTA, str(trace.parent)]),
        Tool(NAMES[3], [sys.executable, "-c", _JSON, str(trace)]),
        Tool(NAMES[4], [sys.executable, "-c", _ORJSON, str(trace)]),
    )
    fit, lines = [], []
    for tool in every:
        if tool.name in without:
            continue
        if reason := _why_not(tool, trace, size):
            lines.append(f"{tool.name} left out: {reason}")
        else:
            fit.append(tool)
    return fit, lines


def _why_not(tool: Tool, trace: Path, size: int) -> str:
    """Return why a tool can't load a trace of this size here; nothing if it can."""
    if tool.bundle:
        return ""
    if tool.name in {"json", "orjson"} and size > _WHOLE_LIMIT:
        return f"a file above {_WHOLE_LIMIT / 1e9:.0f} GB does not fit into memory as Python objects"
    if _TIMES_THE_FILE * size > memory():
        return f"it needs about {_TIMES_THE_FILE} times the file, and this machine has {memory() / 1e9:.0f} GB"
    if tool.name == "HTA" and not has_module(tool.command[0], "hta.trace_analysis", trace.parent):
        return "it isn't installed; pip install -e '.[hta]', or name a Python that has it with --hta-python"
    if tool.name == "orjson" and not has_module(tool.command[0], "orjson", trace.parent):
        return "it isn't installed; pip install orjson"
    return ""


def memory() -> int:
    """Return the bytes of memory of this machine; without end where the system doesn't say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize


def has_module(python: str, module: str, folder: Path) -> bool:
    """Return whether an interpreter that runs in `folder` finds a module."""
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
    return subprocess.run([python, "-c", code, module], cwd=folder, capture_output=True, check=False).returncode == 0


def questions(bundle: Path) -> list[tuple[str, list[str]]]:
    """Return the named questions that a bundle can answer, top_kernels first, as names and commands; and the help."""
    listed = subprocess.run(
        tracekit("query", bundle, "-f", "json"), env={**os.environ, **ENV}, capture_output=True, check=True
    )
    names = [row["question"] for row in json.loads(listed.stdout)["rows"] if row["answerable"]]
    names.sort(key=lambda name: (name != "top_kernels", name))
    commands = [(f"query {name}", tracekit("query", bundle, name, "-f", "csv")) for name in names]
    return [*commands, ("--help", tracekit("--help"))]
