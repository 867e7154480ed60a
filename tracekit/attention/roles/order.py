"""What only order and shapes tell: linears around an attention, the feed-forward after it, sums between blocks.

Owns the reading of a sequence of work of which neither modules nor functions are known: the ops of one thread, or the
kernels that a graph replays. All that it says is inferred, and it says nothing where sizes contradict.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from tracekit.attention.knowledge import load
from tracekit.attention.roles.cores import cores_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.attention.roles.cores import Core, Product, Unit

_REACH = 96
"""A linear is at most so many units from its core: in eager mode relative positions alone take dozens."""
_LOW_RANK = 8
"""No projection and no feed-forward changes the width of rows more than so many times; adapters and gates do."""
_INPUTS = 3
"""Queries, keys and values."""
_UNTOLD = ""
"""Stands for the role of a forward linear that nothing tells: its size is then no evidence."""
_BETWEEN = 24
"""The linears of a feed-forward are at most so many units apart."""


class Finding(NamedTuple):
    """The role of a unit that order tells, and why."""

    role: str
    reason: str


def read(units: Sequence[Unit]) -> dict[int, Finding]:
    """Return by place in the sequence the roles that order tells of units whose role is not known."""
    reader = _Reader(units)
    reader.read_forward()
    reader.read_backward()
    return {place: finding for place, finding in reader.found.items() if units[place].known is None}


class _Reader:
    def __init__(self, units: Sequence[Unit]) -> None:
        self.units = units
        self.found: dict[int, Finding] = {}
        self.products = {place: product for place, unit in enumerate(units) if (product := unit.product)}
        self.cores = cores_of(units)
        self.hidden: set[int] = set()
        """How wide rows are between the blocks, as the linears around cores say."""

    def read_forward(self) -> None:
        """Mark what lies around the cores, the feed-forwards and the sums of the forward pass."""
        for core in self.cores:
            if self.units[core.first].is_backward:
                continue
            self._mark_chain(core)
            for between in range(core.first, core.last + 1):
                self._mark_inside(between, "between the pieces of an attention's core")
            self._project(self._put_out(core))
        for place, unit in enumerate(self.units):
            if unit.action == "gemm" and not unit.is_backward and place not in self.found:
                self._feed_forward(place)
        self._add_residuals()

    # --- around one core -------------------------------------------------------------------------------------------

    def _mark_chain(self, core: Core) -> None:
        """Mark the pieces of a core that is a chain: product, softmax, product, and what lies between."""
        softmax = next((at for at in range(core.first, core.last) if self.units[at].action == "softmax"), None)
        if softmax is None or self.units[core.first].action != "bmm":
            return
        where = "a product, a softmax and a product of fitting shapes"
        rows = load("roles/order")["chain"]
        for place in range(core.first, core.last + 1):
            action = self.units[place].action
            if place == core.first:
                role = "attention.scores"
            elif place == core.last:
                role = "attention.values"
            elif place == softmax:
                role = "attention.softmax"
            else:
                side = "before_softmax" if place < softmax else "after_softmax"
                role = rows[side].get(action or "", "attention.other")
            self._mark(place, role, where)

    def _project(self, core: Core) -> None:
        """Mark the linears before a core that make its queries, keys and values, and what lies between."""
        taken, width = self._projections(core)
        if not taken:
            return
        if width is not None:
            self.hidden.add(width)
        for place in range(taken[-1], core.first):
            if place in taken:
                self._mark(place, "attention.qkv_proj", f"{self._sized(core)} right before an attention's core")
            else:
                self._mark_inside(place, "between the projections and the core of an attention")

    def _projections(self, core: Core) -> tuple[list[int], int | None]:
        """Return the linears that make a core's inputs, the last one first, and how wide the rows they take are."""
        left, taken, width = _INPUTS, list[int](), None
        for place in range(core.first - 1, max(core.first - 1 - _REACH, -1), -1):
            if place in self.found or self._ends(self.units[place], is_norm_end=bool(taken)):
                break
            if self.units[place].action != "gemm":
                continue
            parts, rows = self._parts(core, place)
            if parts and (not taken or rows == width):
                taken.append(place)
                left, width = left - parts, rows
            elif taken and not self._is_low_rank(place):
                break
            if left <= 0:
                break
        return taken, width

    def _parts(self, core: Core, place: int) -> tuple[int, int | None]:
        """Return how many of q, k and v a linear can make, and how wide its rows are."""
        product = self.products.get(place)
        if product is None or not core.has_sizes:
            return (0, None) if core.has_sizes and product is not None else (1, None)
        return 0 if self._is_low_rank(place) else core.projected(product.n), product.k

    def _is_low_rank(self, place: int) -> bool:
        """Tell whether a linear is one of the two of an adapter (LoRA): it widens or narrows rows far too much."""
        product = self.products.get(place)
        return product is not None and _LOW_RANK * min(product.k, product.n) < max(product.k, product.n)

    def _put_out(self, core: Core) -> Core:
        """Mark the linear after a core that projects its output, and what lies between; return what is known then."""
        for place in range(core.last + 1, min(core.last + 1 + _REACH, len(self.units))):
            unit = self.units[place]
            if self._ends(unit, is_norm_end=True) or place in self.found:
                return core
            if unit.action != "gemm":
                continue
            product = self.products.get(place)
            is_sized = product is not None and core.has_sizes
            if product is not None and is_sized:
                if not core.takes(product.k):
                    continue
                self.hidden.add(product.n)
                core = core.given(product.k)
            self._mark(place, "attention.out_proj", f"the first {self._sized(core)[2:]} after an attention's core")
            for between in range(core.last + 1, place):
                self._mark_inside(between, "between the core and the output projection of an attention")
            return core
        return core

    def _ends(self, unit: Unit, *, is_norm_end: bool) -> bool:
        """Tell whether a unit can't lie between a core and its linears."""
        if unit.known is not None and not unit.known.startswith("attention.") and unit.action != "norm":
            return True
        return unit.action in load("roles/order")["ends"]["actions"] or (is_norm_end and unit.action == "norm")

    def _mark_inside(self, place: int, reason: str) -> None:
        action = self.units[place].action or ""
        self._mark(place, load("roles/order")["inside"].get(action, "attention.other"), reason)

    def _sized(self, core: Core) -> str:
        return "a linear of fitting size" if core.has_sizes else "a linear"

    # --- feed-forward and sums -------------------------------------------------------------------------------------

    def _feed_forward(self, place: int) -> None:
        """Mark a linear that widens rows, the one that narrows them again, and what lies between."""
        if (last := self._narrows(place)) is not None:
            for each in range(place, last + 1):
                if self.units[each].action != "norm":
                    self._mark(each, "mlp", self._why_mlp(place))

    def _why_mlp(self, place: int) -> str:
        if place in self.products:
            return "linears that take rows as wide as an attention's block to another width and back"
        return "a linear, an activation and a linear after an attention's output projection"

    def _narrows(self, first: int) -> int | None:
        """Return the linear that ends the feed-forward which a linear begins, or None if it begins none."""
        up = self.products.get(first)
        if self._is_low_rank(first):
            return None
        if (up.k not in self.hidden) if up is not None else not self._follows_attention(first):
            return None
        has_activation = False
        for place in range(first + 1, min(first + 1 + _BETWEEN, len(self.units))):
            unit = self.units[place]
            if place in self.found or self._is_elsewhere(unit):
                return None
            has_activation |= unit.action == "activation"
            if unit.action != "gemm":
                continue
            if _narrow(up, self.products.get(place), has_activation=has_activation):
                return place
            if up is None and unit.name != self.units[first].name:  # a gate's kernel is that of what it gates
                return None
        return None

    def _is_elsewhere(self, unit: Unit) -> bool:
        is_end = unit.action in load("roles/order")["ends_feed_forward"]["actions"]
        return is_end or (unit.known is not None and unit.known != "mlp")

    def _follows_attention(self, place: int) -> bool:
        """Tell whether an attention's output projection is the last thing of a known role before a linear."""
        for before in range(place - 1, max(place - 1 - _BETWEEN, -1), -1):
            if (finding := self.found.get(before)) is not None:
                return finding.role in {"attention.out_proj", "mlp"}
            known = self.units[before].known
            if known is not None and self.units[before].action not in {"norm", "comm"}:
                return known in {"attention.out_proj", "mlp"}
        return False

    def _add_residuals(self) -> None:
        """Mark the sum that follows an attention or a feed-forward, if it is as wide as the rows between blocks."""
        follows = False
        for place, unit in enumerate(self.units):
            role = unit.known or (self.found[place].role if place in self.found else None)
            if role is not None:
                follows = role in {"attention.out_proj", "mlp", "comm"} and (follows or role != "comm")
                continue
            shapes = unit.shapes[:2]
            is_sum = len(shapes) == 2 and shapes[0] == shapes[1] and is_sum_of_rows(unit.name)
            if follows and is_sum and shapes[0] and shapes[0][-1] in self.hidden and not unit.is_backward:
                self._mark(place, "residual", "a sum as wide as the rows between blocks, after one of their two parts")
            follows = follows and not is_sum and unit.action in load("roles/order")["before_sum"]["actions"]

    # --- backward --------------------------------------------------------------------------------------------------

    def read_backward(self) -> None:
        """Mark backward products by the forward linear of the same sizes, and what lies between two of one role."""
        known: dict[tuple[int, ...], set[str]] = {}
        is_after_backward = False
        fresh: set[tuple[int, ...]] = set()
        for place, unit in enumerate(self.units):
            product = self.products.get(place)
            if product is None or unit.action != "gemm":
                continue
            if unit.is_backward:
                is_after_backward = True
                self._mark_backward(place, known.get(product.sizes, set()))
                continue
            if is_after_backward:
                fresh, is_after_backward = set(), False
            role = unit.known or (self.found[place].role if place in self.found else _UNTOLD)
            roles = known.setdefault(product.sizes, set())
            if product.sizes not in fresh:  # a new forward pass
                roles.clear()
                fresh.add(product.sizes)
            roles.add(role)
        self._fill_backward()

    def _mark_backward(self, place: int, roles: set[str]) -> None:
        role = next(iter(roles)) if len(roles) == 1 else self._by_place(place, roles)
        if role not in {None, _UNTOLD}:
            self._mark(place, role or "", f"backward: a product of the sizes of the forward pass's {role}")

    def _by_place(self, place: int, roles: set[str]) -> str | None:
        """Return which of the two linears of an attention it is: the output projection comes first in backward."""
        if roles != {"attention.qkv_proj", "attention.out_proj"}:
            return None
        for step in range(1, _REACH):
            for at, role in ((place + step, "attention.out_proj"), (place - step, "attention.qkv_proj")):
                if 0 <= at < len(self.units) and self.units[at].action == "attention" and self.units[at].is_backward:
                    return role
        return None

    def _fill_backward(self) -> None:
        """Mark what lies between two backward products, or between one and a core, of one part of the model."""
        before: int | None = None
        for place, unit in enumerate(self.units):
            if not unit.is_backward or unit.action in {"norm", "loss", "comm", "optimizer", "embedding"}:
                before = None
                continue
            part = self._part(place)
            if part is None:
                continue
            if before is not None and place - before <= _BETWEEN and self._part(before) == part:
                self._fill(range(before + 1, place), part)
            before = place

    def _part(self, place: int) -> str | None:
        role = self.units[place].known or (self.found[place].role if place in self.found else "")
        if role == "mlp":
            return "mlp"
        return "attention" if role.startswith("attention.") else None

    def _fill(self, places: Iterable[int], part: str) -> None:
        for place in places:
            if self.units[place].action == "gemm":
                return
        for place in places:
            if part == "mlp":
                self._mark(place, "mlp", "backward: between two products of a feed-forward")
            else:
                self._mark_inside(place, "backward: between two pieces of an attention")

    def _mark(self, place: int, role: str, reason: str) -> None:
        self.found.setdefault(place, Finding(role, reason))


@cache
def is_backward_kernel(name: str) -> bool:
    """Return whether a kernel's name says that it is of a backward pass."""
    return re.search(load("roles/order")["backward"]["pattern"], name) is not None


@cache
def is_sum_of_rows(name: str) -> bool:
    """Return whether an op of this name adds tensors and does nothing else."""
    return re.fullmatch(load("roles/order")["sum"]["pattern"], name) is not None


def _narrow(up: Product | None, down: Product | None, *, has_activation: bool) -> bool:
    """Tell whether a linear narrows again what another widened, two widths at once where one gates the other."""
    if up is None or down is None:
        return has_activation
    fits = down.n == up.k and up.n in {down.k, 2 * down.k}
    return fits and (has_activation or down.k > up.k)
