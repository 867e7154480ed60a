"""What `tracekit capture` recorded of torch's switches and versions, under the names that rules about backends read.

Owns the way from a trace's environment_json and settings_json to `readings.Environment.facts`. It trusts nothing in
them: a value of another kind than it must be is left out, so that it is not known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_SWITCHES = ("flash", "efficient", "cudnn", "math", "overrideable")


def backend_facts(environment_json: str | None, settings_json: str | None) -> dict[str, object]:
    """Return the facts of a recording that decide which backend SDPA takes, those that it holds."""
    environment, settings = _read(environment_json), _read(settings_json)
    switches = _table(settings, "sdpa")
    found: dict[str, object] = {f"{name}_enabled": _of(switches.get(name), bool) for name in _SWITCHES}
    found["deterministic"] = _is_deterministic(_table(settings, "deterministic"))
    found["system"] = _of(environment.get("system"), str)
    found["cudnn_version"] = _of(environment.get("cudnn"), int)
    found["cuda_version"] = _major(_of(environment.get("cuda"), str))
    found["arch"] = _before_colon(_of(_table(environment, "gpu").get("gcn_arch"), str))
    found["priority"] = _order(switches.get("priority"))
    return {name: value for name, value in found.items() if value is not None}


def is_switch(name: str) -> bool:
    """Return whether a fact of that name is one that a `sdpa_kernel` block changes for the calls inside it."""
    return name == "priority" or name.removesuffix("_enabled") in _SWITCHES


def _read(text: str | None) -> Mapping[str, Any]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, Mapping) else {}


def _table(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name)
    return found if isinstance(found, Mapping) else {}


def _of(value: object, kind: type) -> Any:
    return value if type(value) is kind else None


def _order(value: object) -> list[str] | None:
    """Return an order of backends as torch names them, if every one is known."""
    names = value if isinstance(value, list) else []
    are_known = all(isinstance(name, str) and name.removesuffix("_attention") in _SWITCHES for name in names)
    return names if names and are_known else None


def _is_deterministic(settings: Mapping[str, Any]) -> bool | None:
    """Return whether deterministic algorithms are demanded; where torch only warns, backends don't refuse."""
    is_asked, is_warning = _of(settings.get("algorithms"), bool), _of(settings.get("warn_only"), bool)
    if is_asked is False or is_warning is True:
        return False
    return None if is_asked is None or is_warning is None else True


def _major(version: str | None) -> int | None:
    major = (version or "").partition(".")[0]
    return int(major) if major.isdecimal() and len(major) < 5 else None


def _before_colon(name: str | None) -> str | None:
    """Return gfx942 of gfx942:sramecc+:xnack-."""
    return (name or "").partition(":")[0] or None
