"""A cleaned trace names no machine, and every number keeps its digits."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.capture.cleaning import clean, local_prefixes

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
RAW = """{
  "schemaVersion": 1,
    "record_shapes": 1,
    "host_name": "box7.example",
    "PT_PROFILER_JOB_NAME": "nightly \\"a\\"",
  "baseTimeNanoseconds": 1790857026000000000,
  "traceEvents": [
  {"name": "/opt/py/lib/python3.11/contextlib.py(81): inner", "ts": 5180094602688.890, "dur": 0.000},
  {"name": "/opt/py/lib/python3.11/site-packages/torch/x.py(7): f", "ts": 9007199254740993.001, "dur": 1e-05},
  {"name": "aten::mul", "args": {"Concrete Inputs": ["1.0000000000000001e-05", "0."], "Bytes": -1024}}
  ],
  "traceName": "/scratch/run/out.json" }"""
PREFIXES = {
    "/opt/py/lib/python3.11/": "",
    "/opt/py/lib/python3.11/site-packages/": "",
    "/opt/kit/capture/": "tracekit/capture/",
    "/scratch/run/": "",
    "/app/": "",
}


def cleaned(name: str) -> str:
    """Return what becomes of one string."""
    found: str = json.loads(clean(json.dumps({"name": name}), PREFIXES))["name"]
    return found


def test_host_and_environment_go_and_paths_get_short() -> None:
    trace = json.loads(clean(RAW, PREFIXES))
    assert list(trace) == ["schemaVersion", "record_shapes", "baseTimeNanoseconds", "traceEvents", "traceName"]
    assert trace["traceName"] == "out.json"
    names = [event["name"] for event in trace["traceEvents"]]
    assert names == ["contextlib.py(81): inner", "torch/x.py(7): f", "aten::mul"]


def test_every_number_keeps_its_digits() -> None:
    unnamed = re.sub(r'\s*"(host_name|PT_PROFILER_JOB_NAME)".*', "", RAW)
    for prefix in sorted(PREFIXES, key=len, reverse=True):
        unnamed = unnamed.replace(prefix, PREFIXES[prefix])
    text = clean(RAW, PREFIXES)
    assert NUMBER.findall(text) == NUMBER.findall(unnamed)
    for digits in ("5180094602688.890", "9007199254740993.001", "0.000", "1e-05", '"1.0000000000000001e-05"'):
        assert digits in text


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("/opt/kit/capture/model.py(3): forward", "tracekit/capture/model.py(3): forward"),
        ("/home/ann/train.py(1): <module>", "train.py(1): <module>"),
        ("/home/Ann Lee/my code/train.py(1): f", "train.py(1): f"),
        ("C:/Users/ann/x.py(2): f", "x.py(2): f"),
        ("<module 'x' from '/srv/data/x.so'>", "<module 'x' from 'x.so'>"),
        ("/x.py", "x.py"),
        ("//host/share/x.py(1): f", "x.py(1): f"),
    ],
)
def test_an_unknown_absolute_path_keeps_its_last_part(name: str, shown: str) -> None:
    assert cleaned(name) == shown


@pytest.mark.parametrize(
    "name",
    ["aten::a/b", "Torch-Compiled Region: 0/1", "torch/app/x.py(3): f", "a / b", "1/2", "<lambda>/f", "x(1)/y"],
)
def test_a_slash_that_starts_no_path_stays(name: str) -> None:
    assert cleaned(name) == name


@given(st.text())
def test_a_text_without_a_slash_stays_as_it_is(name: str) -> None:
    text = json.dumps({"name": name.replace("/", "")})
    assert clean(text, PREFIXES) == text


def test_an_escaped_quote_before_a_path_hides_nothing() -> None:
    assert clean(r'{"name": "say \"/home/ann/x\" twice"}', {}) == r'{"name": "say \"x\" twice"}'


def test_the_places_of_this_machine_are_known(tmp_path: Path) -> None:
    prefixes = local_prefixes(tmp_path / "trace.json")
    for place in (Path.home(), Path.cwd(), tmp_path, Path(json.__file__).parents[1]):
        assert prefixes[f"{place.as_posix()}/"] == ""
    room = Path(__file__).parents[2] / "capture"
    assert prefixes[f"{room.as_posix()}/"] == "tracekit/capture/"
    assert "/" not in prefixes
