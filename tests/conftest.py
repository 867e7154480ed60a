"""Fixtures that every room's tests may use: the real public traces, and a cache of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no fault.
settings.register_profile("tracekit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tracekit")

ROOT = Path(__file__).parents[1]
TRACES = ROOT.parent / "shared" / "traces"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the user's cache out of the tests, and share one among them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="session")
def traces() -> Path:
    """Return the folder of real public traces; tests that need it are skipped where it is absent."""
    if not TRACES.is_dir():
        pytest.skip("the real traces are not here")
    return TRACES
