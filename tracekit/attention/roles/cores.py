"""Units of work in a sequence, their sizes, and the attention cores among them.

Owns what shapes tell of one piece of work: the sizes of a matrix product, which linears fit an attention's queries,
keys and values, and where a product, a softmax and a product make a core that no op names.
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from tracekit.attention.knowledge import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Shape = tuple[int, ...]

_REACH = 48
"""A chain's products are at most so many units from its softmax: relative positions are added between them."""


_PIECES = 6
"""The kernels of one call are at most so many units apart: inputs may be quantised one after the other."""
_NOT_WITHIN = {"gemm", "bmm", "norm", "softmax", "activation", "rope", "kv_cache", "comm"}


class Product(NamedTuple):
    """A matrix product (m, k) x (k, n), `batch` times."""

    batch: int
    m: int
    k: int
    n: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """What the product shares with those of its backward pass, in which the same three sizes change places."""
        return (self.batch, *sorted((self.m, self.k, self.n)))


class Unit(NamedTuple):
    """A piece of work in a sequence: an op with all below it, or a kernel; `row` is its number.

    `known` is its role where more than order tells it, `shapes` those of its inputs, none where they were not
    recorded.
    """

    row: int
    name: str
    action: str | None
    known: str | None
    shapes: tuple[Shape, ...] = ()
    is_backward: bool = False

    @property
    def product(self) -> Product | None:
        """Return the sizes of the matrix product that it is, None where that is not known."""
        if self.action not in {"gemm", "bmm"}:
            return None
        return product_of(self.name, self.shapes)


def product_of(name: str, shapes: Sequence[Shape]) -> Product | None:
    """Return the product that an op computes of inputs of these shapes, None where they don't fit one.

    Ops that add come with what they add first; a linear layer's weight is stored as (n, k), as it
    may be for products that are not ATen's.
    """
    room, _, own = name.rpartition("::")
    factors = shapes[1:3] if own.startswith(("add", "badd")) else shapes[:2]
    if len(factors) < 2 or len(factors[0]) < 2 or len(factors[1]) < 2:
        return None
    left, right = factors
    if "linear" in own or (room != "aten" and left[-1] != right[-2] and len(right) == 2):
        return Product(1, prod(left[:-1]), left[-1], right[0]) if left[-1] == right[-1] else None
    if left[-1] != right[-2]:
        return None
    if len(right) == 2:
        return Product(1, prod(left[:-1]), left[-1], right[-1])
    return Product(prod(left[:-2]), left[-2], left[-1], right[-1])


class Core(NamedTuple):
    """An attention core: from its `first` unit to its `last`, and the widths that its linears can have.

    `queries` and `keys` hold what heads times head dim can be, none where shapes are not known, and `layouts` what
    heads and head dim can be. Of a chain the heads are not known, only the head dim and the number of heads in the
    whole batch.
    """

    first: int
    last: int
    queries: frozenset[int] = frozenset()
    keys: frozenset[int] = frozenset()
    head_dim: int = 0
    batch_heads: int = 0
    layouts: frozenset[tuple[int, int]] = frozenset()

    @property
    def has_sizes(self) -> bool:
        """Return whether sizes say which linears fit."""
        return bool(self.queries or self.head_dim)

    def takes(self, width: int) -> bool:
        """Return whether rows of this width can be what the core gives."""
        if self.queries:
            return width in self.queries or self._is_padded(width)
        return width > 0 and width % self.head_dim == 0 and self.batch_heads % (width // self.head_dim) == 0

    def projected(self, width: int) -> int:
        """Return how many of queries, keys and values a linear of this width can make, 0 if it fits none."""
        if not self.queries:
            return int(any(width % parts == 0 and self.takes(width // parts) for parts in (1, 2, 3)))
        if width in self.queries:
            return 1
        if any(width == query + 2 * key for query in self.queries for key in self.keys):
            return 3
        if any(width in {2 * key, query + key} for query in self.queries for key in self.keys):
            return 2
        if width % 3 == 0 and self._is_padded(width // 3):
            return 3
        return int(width in self.keys or self._is_padded(width))

    def _is_padded(self, width: int) -> bool:
        """Return whether a width fits before the head dim was padded, which at most doubles it."""
        return any(width % heads == 0 and dim < 2 * width // heads < 2 * dim for heads, dim in self.layouts)

    def given(self, width: int) -> Core:
        """Return the core, knowing that what it gives is so wide, which tells how many heads a chain has."""
        if self.queries or not self.head_dim:
            return self
        heads = width // self.head_dim
        keys = frozenset(count * self.head_dim for count in range(1, heads + 1) if heads % count == 0)
        return self._replace(queries=frozenset({width}), keys=keys)


def cores_of(units: Sequence[Unit]) -> list[Core]:
    """Return the cores of a sequence, in its order: ops and kernels that are one, and chains of shapes."""
    chains = [core for place, unit in enumerate(units) if unit.action == "softmax" and (core := _chain(units, place))]
    return sorted([*_fused(units), *chains])


def chains_of(units: Sequence[Unit]) -> list[tuple[Unit, Unit, Unit]]:
    """Return the chains of a sequence as the units that make scores, take their softmax and apply them."""
    found = []
    for place, unit in enumerate(units):
        if unit.action == "softmax" and (core := _chain(units, place)) is not None:
            found.append((units[core.first], unit, units[core.last]))
    return found


def _fused(units: Sequence[Unit]) -> Iterator[Core]:
    """Yield cores that name themselves; what is done for one call in several pieces is one."""
    place = 0
    while place < len(units):
        if units[place].action != "attention":
            place += 1
            continue
        last = place
        while (later := _goes_on(units, place, last)) is not None:
            last = later
        name, shapes = next(
            ((unit.name, unit.shapes) for unit in units[place : last + 1] if len(unit.shapes) >= 2), ("", ())
        )
        layouts = _layouts(name, shapes[:1])
        queries, keys = (
            frozenset(heads * dim for heads, dim in each) for each in (layouts, _layouts(name, shapes[1:3]))
        )
        yield Core(place, last, queries, keys, layouts=layouts)
        place = last + 1


def _goes_on(units: Sequence[Unit], first: int, last: int) -> int | None:
    """Return the next piece of the call, if there is one: an op with inputs begins a call of its own."""
    for place in range(last + 1, min(last + 1 + _PIECES, len(units))):
        unit = units[place]
        if unit.action in _NOT_WITHIN or unit.shapes or unit.is_backward != units[first].is_backward:
            return None
        if unit.action == "attention":
            return place
    return None


def _layouts(name: str, shapes: Sequence[Shape]) -> frozenset[tuple[int, int]]:
    """Return what heads and head dim of inputs can be: which dim counts heads the op may tell."""
    rules = load("roles/order")["heads"]
    found = set()
    for shape in shapes:
        if len(shape) < 3:
            continue
        if len(shape) == 4 and re.match(rules["second"], name):
            counts: Shape = shape[1:2]
        else:
            counts = shape[-2:-1] if re.match(rules["last_but_one"], name) else shape[1 if len(shape) > 3 else 0 : -1]
        found |= {(count, shape[-1]) for count in counts if count > 0}
    return frozenset(found)


def _chain(units: Sequence[Unit], softmax: int) -> Core | None:
    """Return the core around a softmax: the last product before it makes the scores, the next applies them."""
    scores = _product(units, range(softmax - 1, max(softmax - _REACH, -1), -1), softmax, makes_scores=True)
    values = _product(units, range(softmax + 1, min(softmax + _REACH, len(units))), softmax, makes_scores=False)
    if scores is None or values is None:
        return None
    product = units[scores].product
    if product is None:
        return Core(scores, values)
    return Core(scores, values, head_dim=product.k, batch_heads=product.batch)


def _product(units: Sequence[Unit], places: range, softmax: int, *, makes_scores: bool) -> int | None:
    ends = {shape[-2:] for shape in units[softmax].shapes if len(shape) >= 3}
    for place in places:
        unit = units[place]
        if unit.action in {"attention", "softmax"} or (not ends and unit.action == "gemm"):
            return None
        if unit.action != "bmm":
            continue
        product = unit.product
        if not ends or product is None:
            return place if not ends and product is None else None
        if (product.m, product.n if makes_scores else product.k) in ends:
            return place
    return None
