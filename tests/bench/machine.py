"""What a benchmark ran on: the machine and the versions, and nothing that names its owner.

Owns what is told of a machine. No host name, no user, no path.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from tests.bench.measure import how_memory_is_measured
from tests.bench.tools import memory
from tracekit.errors import TracekitError

_OURS = ("torch-tracekit", "polars", "duckdb", "msgspec", "isal", "orjson")
_THEIRS = ("HolisticTraceAnalysis", "pandas")
_VERSIONS = """
import importlib.metadata, json, platform, sys
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def facts(python: str, hta_python: str) -> dict[str, Any]:
    """Return what the figures depend on: processor, memory, system, versions, and how memory is measured.

    Raises TracekitError if one of the two is no Python.
    """
    return {
        "cpus": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cpu": _processor(),
        "memory_bytes": memory(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "versions": _versions(python, _OURS),
        "hta_versions": _versions(hta_python, _THEIRS),
        "peak_memory": how_memory_is_measured(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (names or [platform.processor() or "unknown"])[0]


def _versions(python: str, packages: tuple[str, ...]) -> dict[str, str]:
    try:
        done = subprocess.run([python, "-c", _VERSIONS, *packages], capture_output=True, check=True)
        found: dict[str, str] = json.loads(done.stdout)
    except (OSError, subprocess.CalledProcessError, json.JSONDecodeError) as error:
        raise TracekitError(f"{python} does not run Python", "give the path of an interpreter") from error
    return found
