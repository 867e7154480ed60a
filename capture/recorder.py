"""One clean window: warm up, time the steps without the profiler, record them with it, check and write a bundle.

Owns the order of the passes and what is kept when the window is cut. What a step does is the caller's.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.profiler import ProfilerActivity, record_function
from torch.profiler.profiler import _KinetoProfile

from tracekit.errors import TracekitError

from .environment import environment, settings
from .facts import STEP_MARK, ModelFacts, StepFacts, StepTimes, document
from .faults import memory_faults, out_of_memory
from .model_facts import model_facts
from .saving import check_output, exported, save
from .verdict import Contents, examine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

    Step = Callable[[int], StepFacts | None]

_INTERRUPTED = "interrupted"
_SMALLER = "make the batch, the sequences or the model smaller"


@dataclass(frozen=True)
class Recording:
    """A bundle that was written: the times in ns of its whole steps, and what its trace holds and lacks."""

    path: Path
    unprofiled_step_ns: tuple[int, ...]
    profiled_step_ns: tuple[int, ...]
    contents: Contents
    problems: tuple[str, ...]

    def __str__(self) -> str:
        """Return the verdict in one line."""
        return f"{self.path}: {self.contents}; {', '.join(self.problems) or 'whole'}"


class CutShort(TracekitError):  # noqa: N818 - it tells of a recording, too
    """The window was cut by Ctrl-C or for want of memory; `recording` is what was kept."""

    def __init__(self, recording: Recording) -> None:
        """Say what was kept."""
        super().__init__(str(recording))
        self.recording = recording


@dataclass
class _Pass:
    """The whole steps of a pass: what they told and the ns they took; then what cut it, if anything."""

    facts: list[StepFacts | None] = field(default_factory=list)
    times_ns: list[int] = field(default_factory=list)
    cut: str = ""


class Recorder:
    """Records steps of any PyTorch code into a bundle.

    `model` is the nn.Module whose size is a fact, or these facts; `label` names the workload, and `workload` holds
    more facts of it. `device` is `cuda` or `cpu`: by default `cuda` where there is one. Raises TracekitError, before
    any work, if the output can't be written.
    """

    def __init__(
        self,
        output: Path | str,
        *,
        label: Mapping[str, str] | None = None,
        model: nn.Module | ModelFacts | None = None,
        workload: Mapping[str, object] | None = None,
        device: str | None = None,
        overwrite: bool = False,
    ) -> None:
        self.output, self.overwrite = Path(output), overwrite
        check_output(self.output, overwrite=overwrite)
        self.model = model
        self.workload = {"label": {**(label or {})}, **(workload or {})}
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")

    def run(self, step: Step, steps: int = 3, warmup: int = 2, *, reset: Callable[[], None] | None = None) -> Recording:
        """Call `step(number)` in four passes, each from number 0, and write what the last one recorded.

        The passes: `warmup` steps; `steps` steps, timed without the profiler; one step with the profiler armed;
        `steps` steps in the window. `reset` is called before each, outside of all timing. A step with the same number
        should do the same work in each pass; it may return what it worked on.

        Raises CutShort, after writing, if Ctrl-C or want of memory cut the window behind a whole step. Raises
        TracekitError, and writes nothing, if memory runs out before that, or the disk is full.
        """
        check_output(self.output, overwrite=self.overwrite)
        if steps < 1 or warmup < 0:
            raise ValueError(f"{steps} steps after {warmup} of warm-up can't be recorded")
        profiler = self._profiler()
        reset = reset or (lambda: None)
        with memory_faults(_SMALLER):
            self._pass(step, warmup, reset)
            timed = self._pass(step, steps, reset)
            machine, switches = environment(self.device), settings(self.model)
            self._arm(profiler, step, reset)
        recorded = self._window(profiler, step, steps)
        if not recorded.times_ns:
            remedy = "" if recorded.cut == _INTERRUPTED else _SMALLER
            raise TracekitError(f"{recorded.cut} in the first step: nothing was written", remedy)
        cut_steps = timed.facts[len(recorded.facts) :][:1] if recorded.cut else []
        facts = document(
            environment=machine,
            settings=switches,
            model=_model_facts(self.model),
            workload=self.workload,
            steps=[*recorded.facts, *cut_steps],
            times=StepTimes(timed.times_ns, recorded.times_ns),
        )
        return self._write(profiler, facts, timed, recorded)

    def _profiler(self) -> _KinetoProfile:
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self.device == "cuda" else [])]
        return _KinetoProfile(activities=activities, record_shapes=True, profile_memory=True, with_stack=True)

    def _pass(self, step: Step, steps: int, reset: Callable[[], None]) -> _Pass:
        reset()
        done = _Pass()
        self._steps(step, steps, done, is_marked=False)
        return done

    def _steps(self, step: Step, steps: int, done: _Pass, *, is_marked: bool) -> None:
        """Do the steps one by one, adding each to `done` when the device has ended it."""
        for number in range(steps):
            with record_function(f"{STEP_MARK}{number}") if is_marked else nullcontext():
                start_ns = time.perf_counter_ns()
                told = step(number)
                self._synchronize()
                spent_ns = time.perf_counter_ns() - start_ns
            done.facts.append(told)
            done.times_ns.append(spent_ns)

    def _arm(self, profiler: _KinetoProfile, step: Step, reset: Callable[[], None]) -> None:
        """Set the profiler up and do one step, so that its own first costs fall outside the window."""
        profiler.prepare_trace()
        try:
            self._pass(step, 1, reset)
            reset()
        except BaseException:
            profiler.start_trace()  # it stops only what it started
            profiler.stop_trace()
            raise

    def _window(self, profiler: _KinetoProfile, step: Step, steps: int) -> _Pass:
        """Record the steps; what cuts them is told in the result, unless it is the caller's own fault."""
        done = _Pass()
        profiler.start_trace()
        try:
            self._steps(step, steps, done, is_marked=True)
        except KeyboardInterrupt:
            done.cut = _INTERRUPTED
        except (RuntimeError, MemoryError) as error:
            done.cut = out_of_memory(error)
            if not done.cut:
                raise
        finally:
            self._synchronize()
            profiler.stop_trace()
        return done

    def _synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def _write(self, profiler: _KinetoProfile, facts: Mapping[str, object], timed: _Pass, recorded: _Pass) -> Recording:
        text = exported(profiler.export_chrome_trace, self.output)
        contents = examine(text)
        whole = len(recorded.times_ns)
        problems = contents.lacks(whole + bool(recorded.cut), has_device=self.device == "cuda")
        if recorded.cut:
            problems.insert(0, f"step {whole} is cut ({recorded.cut}), what came before it is whole")
        save(self.output, text, facts, overwrite=self.overwrite)
        times = tuple(timed.times_ns), tuple(recorded.times_ns)
        recording = Recording(self.output, *times, contents, tuple(problems))
        if recorded.cut:
            raise CutShort(recording)
        return recording


def _model_facts(model: nn.Module | ModelFacts | None) -> ModelFacts:
    if model is None or isinstance(model, ModelFacts):
        return model or ModelFacts()
    return model_facts(model)
