"""HolisticTraceAnalysis, run on trace files: `python -P hta_worker.py JOB ANSWER`, both of them JSON files.

Owns all that is said to HTA, in a process of its own: HTA writes to stdout, sets up logging for the whole process and
reads settings from the current folder. It imports HTA and the standard library alone; faults of HTA end it with a
traceback, which `hta_questions` turns into one line. HTA's times are µs; the rows it gives are in ns.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Row = dict[str, Any]


def main(job: Path, answer: Path) -> None:
    """Answer one question: `job` names it, its parameters, and the trace files in their order."""
    asked = json.loads(job.read_text(encoding="utf-8"))
    trace = _loaded(asked["files"])
    rows = [row for number in range(len(asked["files"])) for row in _ANSWERS[asked["question"]](trace, number, asked)]
    answer.write_text(json.dumps(rows), encoding="utf-8")


def _loaded(files: list[str]) -> Any:
    """Return HTA's own trace object, the last profiler step included, which HTA leaves out by default."""
    from hta.common.trace import Trace

    trace = Trace(dict(enumerate(files)), str(Path(files[0]).parent))
    trace.load_traces(include_last_profiler_step=True, use_multiprocessing=False, use_memory_profiling=False)
    return trace


def _idle(trace: Any, number: int, asked: Mapping[str, Any]) -> Iterator[Row]:
    from hta.analyzers.breakdown_analysis import BreakdownAnalysis

    found, _ = BreakdownAnalysis.get_idle_time_breakdown(trace, asked["kernel_delay_us"], number, visualize=False)
    for stream, group in found.groupby("stream"):
        whole = group["idle_time"].sum()
        for cause, idle in zip(group["idle_category"], group["idle_time"], strict=True):
            share = _number(idle / whole) if whole else None
            yield {"trace": number, "stream": int(stream), "cause": cause, "idle_ns": _ns(idle), "share_frac": share}


def _overlap(trace: Any, number: int, _: Mapping[str, Any]) -> Iterator[Row]:
    from hta.analyzers.breakdown_analysis import BreakdownAnalysis
    from hta.analyzers.communication_analysis import CommunicationAnalysis

    times = BreakdownAnalysis.get_temporal_breakdown(trace, visualize=False).set_index("rank").loc[number]
    shares = CommunicationAnalysis.get_comm_comp_overlap(trace, visualize=False).set_index("rank").loc[number]
    share = _number(shares["comp_comm_overlap_pctg"])
    yield {
        "trace": number,
        "span_ns": _ns(times["kernel_time(us)"]),
        "idle_ns": _ns(times["idle_time(us)"]),
        "compute_ns": _ns(times["compute_time(us)"]),
        "other_ns": _ns(times["non_compute_time(us)"]),
        "overlap_frac": None if share is None else share / 100,
    }


def _launch_stats(trace: Any, number: int, asked: Mapping[str, Any]) -> Iterator[Row]:
    from hta.analyzers.cuda_kernel_analysis import CudaKernelAnalysis

    found = CudaKernelAnalysis.cuda_kernel_launch_stats(trace, [number], visualize=False)[number]
    host, device, delay = found["cpu_duration"], found["gpu_duration"], found["launch_delay"]
    yield {
        "trace": number,
        "launches": len(found),
        "host_ns": _ns(host.sum()),
        "device_ns": _ns(device.sum()),
        "delay_p50_ns": _ns(delay.quantile(0.5, interpolation="lower")),
        "delay_p99_ns": _ns(delay.quantile(0.99, interpolation="lower")),
        "delay_max_ns": _ns(delay.max()),
        "short_kernels": int((device < host).sum()),
        "slow_calls": int((host > asked["slow_call_us"]).sum()),
        "late_starts": int((delay > asked["late_start_us"]).sum()),
    }


def _critical_path(trace: Any, number: int, asked: Mapping[str, Any]) -> Iterator[Row]:
    from hta.analyzers.critical_path_analysis import CriticalPathAnalysis

    made = CriticalPathAnalysis.critical_path_analysis(trace, number, asked["annotation"], asked["instance"])
    if made is None:
        raise LookupError(f"no annotation is called {asked['annotation']}")
    graph, is_found = made
    if not is_found:
        raise ArithmeticError("it finds no critical path")
    edges = graph.get_critical_path_breakdown()
    edges = edges[edges["duration"] > 0].fillna({"s_name": ""})
    whole = edges["duration"].sum()
    for (bound_by, name), times in edges.groupby(["bound_by", "s_name"])["duration"]:
        yield {
            "trace": number,
            "bound_by": bound_by or None,
            "name": name or None,
            "edges": len(times),
            "path_ns": _ns(times.sum()),
            "share_frac": float(times.sum() / whole),
        }


def _ns(microseconds: float) -> int | None:
    found = _number(microseconds)
    return None if found is None else round(1000 * found)


def _number(value: float) -> float | None:
    """Return a number as JSON holds it; none where HTA divides nothing by nothing."""
    return float(value) if math.isfinite(value) else None


_ANSWERS: dict[str, Callable[[Any, int, Mapping[str, Any]], Iterator[Row]]] = {
    "hta_idle": _idle,
    "hta_overlap": _overlap,
    "hta_launch_stats": _launch_stats,
    "hta_critical_path": _critical_path,
}

if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
