"""Which ops and kernels make one attention call.

Owns the grouping: ops that name themselves, chains of products around a softmax, the autograd nodes of a call whose
backward pass has no op of its own, and kernels that no op tells of. What a call's ops say is reading.py's.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from tracekit.attention.calls.chain import INPUTS
from tracekit.attention.calls.reading import Row, fits_generic, rule_of
from tracekit.attention.knowledge import family_of, load
from tracekit.attention.roles.cores import Unit, cores_of, product_of
from tracekit.attention.roles.sequences import chains_in_ops, shapes_of
from tracekit.link import nearest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]

_BESIDE = 24
"""How many ops lie at most between the two products of a backward chain that are made of the same gradient."""


class Chain(NamedTuple):
    """The ops of a chain, by row: what makes the scores, the softmax, what applies them."""

    scores: int
    softmax: int
    values: int


@dataclass
class Call:
    """One call: its outermost ops, of those it names itself by all from the outermost, and how it was found.

    `forward` is the number of the forward call that a backward one belongs to. `source` is op, chain, autograd or
    kernel.
    """

    source: str
    roots: list[int] = field(default_factory=list)
    named: list[int] = field(default_factory=list)
    chain: Chain | None = None
    forward: int | None = None
    is_backward: bool = False
    kernels: list[int] = field(default_factory=list)


@dataclass
class Found:
    """The calls, and for each op and each kernel the number of its call, or -1."""

    calls: list[Call]
    of_op: Rows
    of_kernel: Rows


def found_calls(ops: pl.DataFrame, kernels: pl.DataFrame) -> Found:
    """Find the calls of linked ops and kernels, both numbered from 0."""
    finder = _Finder(ops)
    finder.find_named()
    finder.find_chains(is_backward=False)
    finder.find_backward()
    finder.find_chains(is_backward=True)
    of_op = finder.of_op
    op_ids = kernels["op_id"].fill_null(-1).to_numpy()
    of_kernel = np.where(op_ids >= 0, of_op[op_ids], -1) if len(of_op) else np.full(len(op_ids), -1)
    for rows in _calls_of_kernels(kernels, of_kernel):
        of_kernel[rows] = len(finder.calls)
        finder.calls.append(Call("kernel", kernels=rows, is_backward=_is_backward(kernels["name"][rows[0]])))
    return Found(finder.calls, of_op, of_kernel)


class _Finder:
    def __init__(self, ops: pl.DataFrame) -> None:
        self.ops = ops
        self.calls: list[Call] = []
        self.names: list[str] = ops["name"].to_list()
        self.parents: Rows = ops["parent_id"].fill_null(-1).to_numpy()
        self.threads = ops.select("pid", "tid")
        self.of_op: Rows = np.full(ops.height, -1, dtype=np.int64)

    # --- ops that name themselves --------------------------------------------------------------------------------

    def find_named(self) -> None:
        """Make a call of each outermost op that a rule, or its name and shapes, tell to be one."""
        members = self._candidates()
        if not len(members):
            return
        is_member = np.zeros(self.ops.height, dtype=bool)
        is_member[members] = True
        outermost: dict[int, int] = {}
        inner = nearest(self.parents, is_member)
        for row in members.tolist():
            parent = int(self.parents[row])
            above = int(inner[parent]) if parent >= 0 else -1
            outermost[row] = row if above < 0 else outermost[above]
            if above < 0:
                self.calls.append(Call("op", [row]))
        number = {call.roots[0]: at for at, call in enumerate(self.calls)}
        for row in members.tolist():
            self.calls[number[outermost[row]]].named.append(row)
        for call in self.calls:
            rule = rule_of(self.names[call.roots[0]])
            call.is_backward = rule is not None and rule.is_backward
        self._spread(number)
        self._leave_out_projections()

    def _candidates(self) -> Rows:
        """Return the rows of ops that are a call or a piece of one, in order."""
        names = self.ops["name"]
        rules = {name: rule for name in names.unique() if (rule := rule_of(name)) is not None and not rule.is_no_call}
        if not rules:
            return np.empty(0, dtype=np.int64)
        found = self.ops.with_row_index("row").filter(
            pl.col("name").is_in(list(rules)) & (pl.col("kind") != "annotation")
        )
        generic = [name for name, rule in rules.items() if rule.is_generic]
        if generic:
            unknown = found.filter(pl.col("name").is_in(generic))
            fits = {row for row, *texts in unknown.select("row", *INPUTS).iter_rows() if fits_generic(Row(*texts))}
            found = found.filter(~pl.col("name").is_in(generic) | pl.col("row").is_in(list(fits)))
        return found["row"].to_numpy().astype(np.int64)

    def _spread(self, roots: dict[int, int]) -> None:
        """Give all ops in the trees below `roots` the number of the call, where they have none."""
        if not roots:
            return
        chosen = np.zeros(self.ops.height, dtype=bool)
        number = np.full(self.ops.height + 1, -1, dtype=np.int64)
        rows = np.fromiter(roots, dtype=np.int64)
        chosen[rows] = True
        number[rows] = np.fromiter(roots.values(), dtype=np.int64)
        told = number[nearest(self.parents, chosen)]
        self.of_op = np.where(self.of_op < 0, told, self.of_op)

    def _leave_out_projections(self) -> None:
        """Leave to calls of ops that also project only those ops within them that are the attention."""
        rules = [rule_of(self.names[call.roots[0]]) for call in self.calls]
        projects = np.array([bool(rule and rule.keeps) for rule in rules])
        if not projects.any():
            return
        inside = np.flatnonzero((self.of_op >= 0) & projects[self.of_op])
        keeps = {name for rule in rules if rule for name in rule.keeps}
        kept = np.zeros(self.ops.height, dtype=bool)
        kept[inside] = self.ops["name"].gather(inside).is_in(list(keeps)).to_numpy()
        stays = nearest(self.parents, kept)[inside] >= 0
        self.of_op[inside[~stays]] = -1

    # --- chains --------------------------------------------------------------------------------------------------

    def find_chains(self, *, is_backward: bool) -> None:
        """Make a call of each product, softmax and product of fitting shapes that belong to no call."""
        roots: dict[int, int] = {}
        last = -1
        for scores, softmax, values in self._chains():
            if scores.is_backward != is_backward or any(
                self.of_op[unit.row] >= 0 for unit in (scores, softmax, values)
            ):
                continue
            first, end = self._with_others(scores, values) if is_backward else (scores.row, values.row)
            rows = self._between(self._wrapped(first), self._wrapped(end))
            if not rows or rows[0] <= last:
                continue
            last = rows[-1]
            roots.update(dict.fromkeys(rows, len(self.calls)))
            chain = Chain(scores.row, softmax.row, values.row)
            self.calls.append(Call("chain", rows, [], chain, None, is_backward))
        self._spread(roots)

    def _chains(self) -> list[tuple[Unit, Unit, Unit]]:
        if not hasattr(self, "_known_chains"):
            self._known_chains = chains_in_ops(self.ops)
        return self._known_chains

    def _with_others(self, first: Unit, last: Unit) -> tuple[int, int]:
        """Return where a backward chain begins and ends: dV is made beside dP, and dK beside dQ, of the same sizes."""
        found = []
        for unit, step in ((first, -1), (last, 1)):
            found.append(unit.row)
            for row in range(unit.row + step, unit.row + step * _BESIDE, step):
                if not 0 <= row < len(self.names) or self.of_op[row] >= 0:
                    break
                if self.names[row] == "aten::bmm":
                    other = product_of(self.names[row], shapes_of(self.ops["input_dims"][row] or ""))
                    if other is not None and unit.product is not None and other.sizes == unit.product.sizes:
                        found[-1] = row
                    break
        return found[0], found[1]

    def _wrapped(self, row: int) -> int:
        """Return the op around a product that asks for it, such as matmul, or the product."""
        wrappers = load("calls/calls")["chain"]["wrappers"]
        while (parent := int(self.parents[row])) >= 0 and self.names[parent] in wrappers:
            row = parent
        return row

    def _between(self, first: int, last: int) -> list[int]:
        """Return the outermost ops from one op to another of its thread."""
        rows = self.threads[first : last + 1].rows()
        inside: set[int] = set()
        found = []
        for row in range(first, last + 1):
            if int(self.parents[row]) in inside:
                inside.add(row)
            elif rows[row - first] == rows[0]:
                inside.add(row)
                found.append(row)
        return found

    # --- backward passes without an op of their own --------------------------------------------------------------

    def find_backward(self) -> None:
        """Link backward calls to forward ones, and gather the autograd nodes of those that have none."""
        forwards = self.ops["forward_op_id"].fill_null(-1).to_numpy()
        origin = np.where(forwards >= 0, self.of_op[forwards], -1) if len(forwards) else forwards
        have = set()
        for call in self.calls:
            if call.is_backward and call.roots and origin[call.roots[0]] >= 0:
                call.forward = int(origin[call.roots[0]])
                have.add(call.forward)
        is_free = (origin >= 0) & (self.of_op < 0) & (self.ops["phase"] == "backward").to_numpy()
        is_free &= ~np.isin(origin, list(have))
        gathered: dict[int, list[int]] = defaultdict(list)
        for row in np.flatnonzero(is_free).tolist():
            parent = int(self.parents[row])
            if parent < 0 or not is_free[parent] or origin[parent] != origin[row]:
                gathered[int(origin[row])].append(row)
        roots: dict[int, int] = {}
        for forward, rows in gathered.items():
            roots.update(dict.fromkeys(rows, len(self.calls)))
            self.calls.append(Call("autograd", rows, forward=forward, is_backward=True))
        self._spread(roots)


@cache
def _is_backward(kernel: str) -> bool:
    return "bwd" in kernel.lower() or "backward" in kernel.lower()


def _calls_of_kernels(kernels: pl.DataFrame, of_kernel: Rows) -> list[list[int]]:
    """Return the kernels of attentions that no op tells of, but whose launch is known: those of one call together."""
    names = kernels["name"]
    families = {name: family for name in names.unique() if (family := family_of(name)) is not None}
    fused = [name for name, family in families.items() if family.action == "attention"]
    is_free = pl.Series(of_kernel < 0) & kernels["launch_id"].is_not_null()
    if not fused or not (is_free & names.is_in(fused)).any():
        return []
    rows = kernels.with_row_index("row").filter(is_free).sort("device", "stream", "start_ns", "kernel_id")
    found = []
    for _, own in rows.group_by(["device", "stream"], maintain_order=True):
        units = [
            Unit(row, name, family.action if (family := families.get(name)) else None, None, (), _is_backward(name))
            for row, name in own.select("row", "name").iter_rows()
        ]
        for core in cores_of(units):
            pieces = units[core.first : core.last + 1]
            if units[core.first].action == "attention":
                found.append([unit.row for unit in pieces if unit.action == "attention"])
    return found
