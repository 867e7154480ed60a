"""Facts about the machine and about torch's switches, as the recording found them.

Owns what is asked and of whom; what can't be asked is None. Must hold nothing that names a host, a user, a path or an
environment variable.
"""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

_SMI_FIELDS = {
    "driver": "driver_version",
    "clock_mhz": "clocks.sm",
    "max_clock_mhz": "clocks.max.sm",
    "memory_clock_mhz": "clocks.mem",
    "max_memory_clock_mhz": "clocks.max.mem",
    "power_limit_w": "power.limit",
}
_LIBRARIES = ("triton", "transformers", "flash-attn", "xformers")


def environment(device: str) -> dict[str, object]:
    """Return versions, the host and, where `device` is `cuda`, the GPU in use with its clocks at this moment."""
    return {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": _cudnn(),
        "libraries": _libraries(),
        "cpu": _cpu(),
        "device": device,
        "gpu": _gpu() if device == "cuda" else None,
    }


def settings(model: object = None) -> dict[str, object]:
    """Return torch's switches that decide which attention runs and how exactly."""
    return {
        "sdpa": {
            "flash": _switch("_get_flash_sdp_enabled"),
            "flash_3": _switch("_get_fa3_sdp_enabled"),
            "efficient": _switch("_get_mem_efficient_sdp_enabled"),
            "math": _switch("_get_math_sdp_enabled"),
            "cudnn": _switch("_get_cudnn_sdp_enabled"),
            "overrideable": _switch("_get_overrideable_sdp_enabled"),
            "math_reduces_in_half": _switch("_get_math_sdp_allow_fp16_bf16_reduction"),
            "priority": _priority(),
        },
        "float32_matmul_precision": _switch("_get_float32_matmul_precision"),
        "tf32": {"matmul": _switch("_get_cublas_allow_tf32"), "cudnn": _switch("_get_cudnn_allow_tf32")},
        "deterministic": {
            "algorithms": torch.are_deterministic_algorithms_enabled(),
            "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
            "cudnn": torch.backends.cudnn.deterministic,
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
        },
        "compile": {"is_compiled": hasattr(model, "_orig_mod")},
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
    }


def _switch(getter: str) -> object:
    """Return a switch, or None where this version has no such one, or refuses since old and new ways to set it met.

    These are what torch's public functions call: those are newer than 2.5, or warn, or have no types.
    """
    with suppress(AttributeError, RuntimeError):
        found: object = getattr(torch._C, getter)()  # noqa: SLF001
        return found
    return None


def _priority() -> list[str] | None:
    """Return the order in which torch tries SDPA's backends; versions before 2.6 don't tell."""
    order = _switch("_get_sdp_priority_order")
    if not isinstance(order, list):
        return None
    backends = torch.nn.attention.SDPBackend.__members__.items()
    return [
        next((name.lower() for name, backend in backends if backend.value == number), str(number)) for number in order
    ]


def _cudnn() -> int | None:
    """Return the version as cuDNN writes it, 91002 for 9.10.2; None where this torch has none."""
    found: int | None = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return found


def _libraries() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _cpu() -> dict[str, object]:
    name = None
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
    return {
        "name": name or platform.processor() or None,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
    }


def _gpu() -> dict[str, object]:
    index = torch.cuda.current_device()
    properties: Any = torch.cuda.get_device_properties(index)
    return {
        "name": properties.name,
        "count": torch.cuda.device_count(),
        "compute_capability": f"{properties.major}.{properties.minor}",
        "gcn_arch": getattr(properties, "gcnArchName", None) if torch.version.hip else None,
        "sm_count": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "allocator": torch.cuda.memory.get_allocator_backend(),
        **(_amd_driver() if torch.version.hip else _nvidia(str(getattr(properties, "uuid", "")))),
    }


def _nvidia(uuid: str) -> dict[str, object]:
    """Return driver and clocks as nvidia-smi tells them of one GPU; None where it is not there or knows no such GPU."""
    told = _nvidia_smi(f"GPU-{uuid.removeprefix('GPU-')}") if uuid else ""
    values = [value.strip() for value in told.splitlines()[0].split(",")] if told.strip() else []
    if len(values) != len(_SMI_FIELDS):
        return dict.fromkeys(_SMI_FIELDS)
    named = dict(zip(_SMI_FIELDS, values, strict=True))
    return {name: value if name == "driver" else _number(value) for name, value in named.items()}


def _nvidia_smi(gpu: str) -> str:
    command = [
        "nvidia-smi",
        f"--query-gpu={','.join(_SMI_FIELDS.values())}",
        "--format=csv,noheader,nounits",
        "-i",
        gpu,
    ]
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout
    return ""


def _number(text: str) -> float | None:
    with suppress(ValueError):
        return float(text)
    return None


def _amd_driver() -> dict[str, object]:
    with suppress(OSError):
        return {"driver": Path("/sys/module/amdgpu/version").read_text("ascii").strip()}
    return {"driver": None}
