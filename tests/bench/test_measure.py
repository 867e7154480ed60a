"""Measured from outside: what a process and those that it starts cost, not what this one does."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.bench.measure import measured
from tests.bench.rounds import Job, in_turn

if TYPE_CHECKING:
    from pathlib import Path

HOLD = "import sys; held = bytearray(int(sys.argv[1])); held[::4096] = b'x' * len(held[::4096])"
"""Fills memory, page by page."""
BELOW = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', *sys.argv[1:]], check=True)"
MB = 10**6

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is not measured there")


def python(code: str, *words: object) -> list[str]:
    """Return the command of a small Python process."""
    return [sys.executable, "-S", "-c", code, *map(str, words)]


def test_the_peak_of_a_process_is_what_it_held(tmp_path: Path) -> None:
    idle = measured(python("pass"), tmp_path).peak_bytes
    full = measured(python(HOLD, 300 * MB), tmp_path).peak_bytes

    assert idle is not None
    assert full is not None
    assert full - idle == pytest.approx(300 * MB, abs=15 * MB)


def test_the_peak_is_that_of_the_largest_process_in_the_tree(tmp_path: Path) -> None:
    done = measured(python(BELOW, HOLD, 200 * MB), tmp_path)

    assert done.peak_bytes is not None
    assert done.peak_bytes == pytest.approx(208 * MB, abs=20 * MB)


def test_memory_held_here_is_not_counted_for_a_process_started_from_here(tmp_path: Path) -> None:
    held = bytearray(200 * MB)
    held[::4096] = b"x" * len(held[::4096])
    done = measured(python("import time; time.sleep(0.1)"), tmp_path)

    assert done.peak_bytes is not None
    assert done.peak_bytes < 50 * MB


def test_seconds_are_those_that_pass_and_cpu_seconds_those_of_work(tmp_path: Path) -> None:
    done = measured(python("import time; time.sleep(0.5)"), tmp_path)
    busy = measured(
        python(BELOW, "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"), tmp_path
    )

    assert done.seconds >= 0.5
    assert done.cpu_seconds is not None
    assert done.cpu_seconds < 0.3
    assert busy.cpu_seconds is not None
    assert busy.cpu_seconds >= 0.3


def test_a_command_that_fails_says_why_in_a_line(tmp_path: Path) -> None:
    done = measured(python("import pathlib, sys; sys.exit(f'first\\nno file in {pathlib.Path.home()}/x')"), tmp_path)

    assert (done.exit_code, done.fault) == (1, "no file in ~/x")
    assert measured(python("import os; os._exit(3)"), tmp_path).fault == "exit code 3"


def test_an_interrupted_measurement_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import signal

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    mark = tmp_path / "mark"
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(KeyboardInterrupt):
            measured(python("import pathlib, time; time.sleep(1.5); pathlib.Path('mark').touch()"), tmp_path)
    finally:
        signal.signal(signal.SIGALRM, previous)
    time.sleep(1.2)

    assert not mark.exists()


def test_jobs_are_measured_in_turn_and_one_that_failed_only_once(tmp_path: Path) -> None:
    lines: list[str] = []
    jobs = [Job("good", python("pass"), {}), Job("bad", python("raise SystemExit('no')"), {})]
    good, bad = in_turn(jobs, 2, tmp_path, lines.append)

    assert [line.split(":")[0].strip() for line in lines] == ["1/2  good", "1/2  bad", "2/2  good"]
    assert (len(good.runs), good.fault) == (2, "")
    assert good.seconds == pytest.approx(sum(run.seconds for run in good.runs) / 2)
    assert (len(bad.runs), bad.fault) == (1, "no")
