"""Inputs of attention ops by name, against PyTorch's own schemas and rows as traces have them."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.attention.calls.arguments import Argument, arguments, as_called
from tracekit.attention.calls.figures import counted
from tracekit.attention.calls.reading import Row, read_op
from tracekit.attention.knowledge import load
from tracekit.element_types import size_of

SDPA = "aten::scaled_dot_product_attention"
SHAPE = [2, 4, 16, 8]
SCHEMAS = """
import json, torch
names = {}
for schema in torch._C._jit_get_all_schemas():
    if schema.overload_name != "out":
        names.setdefault(schema.name, []).append([argument.name for argument in schema.arguments])
print(json.dumps(names))
"""


def texts(*columns: object) -> tuple[str | None, ...]:
    return tuple(None if column is None else json.dumps(column) for column in columns)


def sdpa(count: int = 8, **changes: object) -> dict[str, Argument] | None:
    columns = {
        "dims": [SHAPE, SHAPE, SHAPE, [], [], [], [], []],
        "types": ["c10::BFloat16"] * 3 + ["", "Scalar", "Scalar", "Scalar", "Scalar"],
        "strides": [[512, 128, 8, 1]] * 3 + [[]] * 5,
        "concrete": ["", "", "", "", "0.", "True", "0.125", "False"],
    } | changes
    return arguments(SDPA, *texts(*(each and each[:count] for each in columns.values())))  # type: ignore[index]


def test_inputs_have_their_names_shapes_types_and_values() -> None:
    named = sdpa()
    assert named is not None
    assert named["query"] == Argument((2, 4, 16, 8), "bfloat16", (512, 128, 8, 1), None)
    assert named["attn_mask"] == Argument(None, None, None, None)
    values = {name: one.value for name, one in named.items() if one.value is not None}
    assert values == {"dropout_p": 0.0, "is_causal": True, "scale": 0.125, "enable_gqa": False}


@pytest.mark.parametrize(("count", "last"), [(6, "is_causal"), (7, "scale"), (8, "enable_gqa")])
def test_older_releases_lack_the_last_arguments(count: int, last: str) -> None:
    named = sdpa(count)
    assert named is not None
    assert list(named)[-1] == last


def test_a_row_that_no_order_fits_has_no_names() -> None:
    assert sdpa(5) is None
    assert arguments("aten::mm", "[[2,3],[3,4]]", '["float","float"]', None, None) is None
    assert sdpa(concrete=["", "", "", "", "True", "0.", "0.125", "False"]) is None  # causal is no number
    assert arguments(SDPA, None, None, None, None) is None
    assert arguments(SDPA, "[[1,", None, None, None) is None
    assert arguments(SDPA, '{"a": 1}', None, None, None) is None


def test_what_was_not_recorded_is_not_made_up() -> None:
    named = sdpa(dims=None, strides=None)
    assert named is not None
    assert named["query"] == Argument(None, "bfloat16", None, None)
    named = sdpa(types=["c10::Weird"] * 3 + ["", "Scalar", "Scalar", "Scalar", "Scalar"])
    assert named is not None
    assert named["query"].dtype is None
    assert named["query"].shape == (2, 4, 16, 8)
    named = sdpa(dims=[[], [], [], [], [], [], [], []], types=["", "", "", "", "Scalar", "Scalar", "", "Scalar"])
    assert named is not None
    assert named["query"] == Argument(None, None, None, None)  # as nested tensors are


def test_two_orders_of_one_length_are_told_apart_by_their_values() -> None:
    name = "aten::_scaled_dot_product_cudnn_attention"
    old = arguments(name, *texts([SHAPE] * 3 + [[]] * 4, None, None, ["", "", "", "0.1", "True", "False", ""]))
    assert old is not None
    assert old["dropout_p"].value == 0.1
    new = arguments(
        name, *texts([SHAPE] * 3 + [[]] * 6, None, None, ["", "", "", "", "True", "0.", "False", "False", ""])
    )
    assert new is not None
    assert new["compute_log_sumexp"].value is True


def test_sizes_of_element_types() -> None:
    assert (size_of("bfloat16"), size_of("float8_e4m3fn"), size_of("float64"), size_of(None)) == (2, 1, 8, None)


def test_orders_are_those_of_pytorch() -> None:
    if find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    done = subprocess.run([sys.executable, "-c", SCHEMAS], capture_output=True, text=True, check=True)
    known: dict[str, list[list[str]]] = json.loads(done.stdout)
    alike = {"q": "query", "k": "key", "v": "value"}  # what one old op calls them
    checked = 0
    for name in {name for row in load("calls/arguments")["op"] for name in row.get("names", ()) if name in known}:
        rows = [row for row in load("calls/arguments")["op"] if name in row.get("names", ())]
        for schema in ([alike.get(each, each) for each in names] for names in known[name]):
            fitting = [row["args"][: len(schema)] for row in rows if row.get("least", len(row["args"])) <= len(schema)]
            assert schema in fitting, name
            checked += 1
    assert checked >= 20


CELLS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(["", "Scalar", "float", "[1", "0.", "nan", "True"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=8,
)
COLUMN = (
    st.none() | st.text(max_size=5) | st.lists(CELLS, min_size=6, max_size=8).map(json.dumps) | CELLS.map(json.dumps)
)


@given(COLUMN, COLUMN, COLUMN, COLUMN)
def test_no_text_is_too_odd_to_be_read(
    dims: str | None, types: str | None, strides: str | None, concrete: str | None
) -> None:
    for one in (arguments(SDPA, dims, types, strides, concrete) or {}).values():
        assert one.shape is None or all(isinstance(size, int) for size in one.shape)
    row = Row(SDPA, dims, types, strides, concrete)
    assert counted(read_op(row)).pairs_status in {"exact", "estimated", "not_derivable"}


def test_sizes_of_another_attention_are_read_as_the_wrappers_arguments() -> None:
    sizes = {"b": 2, "hq": 8, "hkv": 2, "nq": 16, "nk": 32, "d_qk": 64, "d_v": None, "dtype": "float16"}
    called = as_called(sizes | {"mask_kind": "additive", "dropout": None})
    assert called is not None
    assert called["query"] == Argument((2, 8, 16, 64), "float16", (8192, 1024, 64, 1), None)
    assert called["value"].shape == (2, 2, 32, 64)
    assert called["attn_mask"].shape == (2, 8, 16, 32)
    assert {name: called[name].value for name in ("dropout_p", "is_causal", "enable_gqa")} == {
        "dropout_p": 0.0,
        "is_causal": False,
        "enable_gqa": True,
    }


@pytest.mark.parametrize("missing", ["b", "nq", "dtype", "mask_kind"])
def test_sizes_that_lack_one_are_no_call(missing: str) -> None:
    sizes = {"b": 2, "hq": 8, "hkv": 2, "nq": 16, "nk": 32, "d_qk": 64, "d_v": 64, "dtype": "float16"}
    assert as_called(sizes | {"mask_kind": "none", "dropout": None} | {missing: None}) is None
