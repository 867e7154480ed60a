"""Facts of a recording under the names that rules about backends read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tracekit.attention.backends.facts import backend_facts, is_switch
from tracekit.attention.knowledge import load

RECORDED: dict[str, Any] = {
    "environment": {"system": "Linux", "cuda": "12.8", "cudnn": 91002, "gpu": {"gcn_arch": "gfx942:sramecc+:xnack-"}},
    "settings": {
        "sdpa": {
            "flash": True,
            "efficient": False,
            "math": True,
            "cudnn": None,
            "priority": ["math", "flash_attention"],
        },
        "deterministic": {"algorithms": True, "warn_only": False},
    },
}


def told(content: dict[str, Any]) -> dict[str, object]:
    return backend_facts(json.dumps(content.get("environment")), json.dumps(content.get("settings")))


def test_a_recording_is_read_by_the_names_of_rules() -> None:
    found = told(RECORDED)
    assert found == {
        "flash_enabled": True,
        "efficient_enabled": False,
        "math_enabled": True,
        "deterministic": True,
        "system": "Linux",
        "cudnn_version": 91002,
        "cuda_version": 12,
        "arch": "gfx942",
        "priority": ["math", "flash_attention"],
    }
    assert found.keys() - {"priority"} <= {row["name"] for row in load("backends/backends")["fact"]}


@pytest.mark.parametrize(
    ("algorithms", "warn_only", "found"),
    [(True, False, True), (True, True, False), (False, False, False), (True, None, None), (None, False, None)],
)
def test_a_warning_is_no_demand(algorithms: object, warn_only: object, found: object) -> None:
    settings = {"deterministic": {"algorithms": algorithms, "warn_only": warn_only}}
    assert told({"settings": settings}).get("deterministic") is found


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"environment": None, "settings": []},
        {"settings": {"sdpa": {"flash": "yes", "priority": "math"}}},
        {"environment": {"cuda": "x", "cudnn": True}},
        {"environment": {"cuda": "9" * 5_000}},
        {"settings": {"sdpa": {"priority": ["flash_attention", "nonsense"]}}},
        {"settings": {"sdpa": {"priority": ["math", 3]}}},
        {"settings": {"sdpa": {"priority": []}}},
    ],
)
def test_what_is_of_another_kind_is_not_known(content: dict[str, Any]) -> None:
    assert told(content) == {}


@pytest.mark.parametrize("text", [None, "", "{", "[]", "3", "[" * 5_000])
def test_what_is_no_object_holds_no_facts(text: str | None) -> None:
    assert backend_facts(text, text) == {}


def test_what_a_block_of_sdpa_kernel_changes_is_a_switch() -> None:
    assert {name for name in told(RECORDED) if is_switch(name)} == {
        *("flash_enabled", "efficient_enabled", "math_enabled", "priority"),
    }
