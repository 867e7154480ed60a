"""Facts about the machine: what they hold, and that no switch is misread."""

from __future__ import annotations

import getpass
import json
import os
import platform
from pathlib import Path

import torch
from inline_snapshot import snapshot
from torch.nn.attention import SDPBackend, sdpa_kernel

from tracekit.capture.environment import environment, settings


def test_the_environment_holds_versions_and_the_host() -> None:
    found = environment("cpu")
    assert list(found) == snapshot(
        ["torch", "python", "system", "machine", "cuda", "hip", "cudnn", "libraries", "cpu", "device", "gpu"]
    )
    assert found["torch"] == torch.__version__
    assert (found["device"], found["gpu"]) == ("cpu", None)
    assert json.loads(json.dumps(found)) == found


def test_the_environment_names_neither_host_nor_user_nor_place() -> None:
    words = json.dumps([environment("cpu"), settings()])
    assert f'"{platform.node()}"' not in words
    assert f'"{getpass.getuser()}"' not in words
    assert "/" not in words
    assert str(Path.home()) not in words
    assert os.environ["PATH"] not in words


def test_switches_are_read_while_they_are_in_force() -> None:
    with sdpa_kernel(SDPBackend.MATH):
        sdpa = settings()["sdpa"]
    assert isinstance(sdpa, dict)
    assert (sdpa["math"], sdpa["flash"], sdpa["efficient"], sdpa["cudnn"]) == (True, False, False, False)
    after = settings()["sdpa"]
    assert isinstance(after, dict)
    assert (after["math"], after["flash"]) == (True, True)


def test_the_order_of_backends_is_told_by_name() -> None:
    sdpa = settings()["sdpa"]
    assert isinstance(sdpa, dict)
    assert set(sdpa["priority"]) >= {"flash_attention", "efficient_attention", "math", "cudnn_attention"}


def test_a_compiled_model_is_told_from_a_plain_one() -> None:
    plain = torch.nn.Linear(2, 2)
    assert settings(plain)["compile"] == {"is_compiled": False}
    assert settings(torch.compile(plain, backend="eager"))["compile"] == {"is_compiled": True}
