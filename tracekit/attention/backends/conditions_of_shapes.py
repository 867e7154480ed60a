"""Conditions on the shapes of an SDPA call.

Each is a word of the rules in TOML, by the name of its function; conditions.py says how they are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.attention.backends.condition import needing

if TYPE_CHECKING:
    from tracekit.attention.backends.condition import Condition

SHAPES: dict[str, Condition] = {}
"""Every condition of this file by name."""

needs = needing(SHAPES)


@needs("ranks")
def rank_not(rank: int, ranks: tuple[int, ...]) -> bool:
    """Hold where a tensor has not so many dims."""
    return any(each != rank for each in ranks)


@needs("ranks")
def rank(number: int, ranks: tuple[int, ...]) -> bool:
    """Hold where every tensor has so many dims."""
    return all(each == number for each in ranks)


@needs("nested")
def nested(value: object) -> bool:
    """Hold where an input is a nested tensor."""
    return bool(value)


@needs("shapes")
def zero_size(shapes: tuple[tuple[int, ...], ...]) -> bool:
    """Hold where a tensor has no elements."""
    return any(0 in shape for shape in shapes)


@needs("batches")
def batches_differ(batches: tuple[int, ...]) -> bool:
    """Hold where batch sizes differ."""
    return len(set(batches)) > 1


@needs("heads")
def heads_differ(heads: tuple[int, ...]) -> bool:
    """Hold where head counts differ."""
    return len(set(heads)) > 1


@needs("heads")
def kv_heads_differ(heads: tuple[int, ...]) -> bool:
    """Hold where keys and values differ in heads."""
    return heads[1] != heads[2]


@needs("heads")
def heads_indivisible(heads: tuple[int, ...]) -> bool:
    """Hold where heads of keys or of values don't divide those of queries."""
    return any(each == 0 or heads[0] % each for each in heads[1:])


@needs("heads")
def kv_heads(number: int, heads: tuple[int, ...]) -> bool:
    """Hold where keys and values have so many heads."""
    return heads[1] == heads[2] == number


@needs("batches", "heads")
def batch_or_heads_over(limit: int, batches: tuple[int, ...], heads: tuple[int, ...]) -> bool:
    """Hold where the batch or the heads of queries are more."""
    return max(batches[0], heads[0]) > limit


@needs("head_dims")
def head_dims_differ(dims: tuple[int, ...]) -> bool:
    """Hold where query, key and value have not one head_dim."""
    return len(set(dims)) > 1


@needs("head_dims")
def query_key_dims_differ(dims: tuple[int, ...]) -> bool:
    """Hold where query and key have not one head_dim."""
    return dims[0] != dims[1]


@needs("head_dims")
def head_dim_over(limit: int, dims: tuple[int, ...]) -> bool:
    """Hold where a head_dim is larger."""
    return max(dims) > limit


@needs("head_dims")
def head_dim_at_most(limit: int, dims: tuple[int, ...]) -> bool:
    """Hold where no head_dim is larger."""
    return max(dims) <= limit


@needs("head_dims")
def head_dim(number: int, dims: tuple[int, ...]) -> bool:
    """Hold where every head_dim is this."""
    return set(dims) == {number}


@needs("head_dims")
def head_dims(exact: list[int], dims: tuple[int, ...]) -> bool:
    """Hold where the head_dims of queries and values are these two."""
    return [dims[0], dims[2]] == exact


@needs("head_dims")
def query_dim_within(bounds: list[int], dims: tuple[int, ...]) -> bool:
    """Hold where the head_dim of queries lies within bounds, both included."""
    return bounds[0] <= dims[0] <= bounds[1]


@needs("head_dims")
def largest_query_or_key_dim(number: int, dims: tuple[int, ...]) -> bool:
    """Hold where the larger head_dim of queries and keys is this."""
    return max(dims[:2]) == number


@needs("head_dims")
def head_dim_not_multiple(factor: int, dims: tuple[int, ...]) -> bool:
    """Hold where the head_dim of queries or of values is no multiple of a factor."""
    return any(each % factor for each in (dims[0], dims[2]))


@needs("head_dims", "dtypes", "sm")
def head_dim_misaligned(dims: tuple[int, ...], dtypes: tuple[str, ...], capability: int) -> bool:
    """Hold where the head_dim of queries or of values is 0, or less aligned than CUTLASS needs on the device."""
    factor = 8 if dtypes[0] in {"float16", "bfloat16"} and capability >= 70 else 1
    factor = 4 if dtypes[0] == "float32" and capability >= 80 else factor
    return any(each == 0 or each % factor for each in (dims[0], dims[2]))


@needs("query_length", "key_length")
def lengths_differ(queries: int, keys: int) -> bool:
    """Hold where there are not as many queries as keys."""
    return queries != keys


@needs("query_length", "key_length")
def query_shorter(queries: int, keys: int) -> bool:
    """Hold where there are fewer queries than keys."""
    return queries < keys


@needs("key_length", "value_length")
def values_differ(keys: int, values: int) -> bool:
    """Hold where there are not as many values as keys."""
    return keys != values


@needs("query_length", "key_length")
def length_zero(queries: int, keys: int) -> bool:
    """Hold where there are no queries or no keys."""
    return queries == 0 or keys == 0


@needs("query_length")
def query_length(number: int, queries: int) -> bool:
    """Hold where there are so many queries."""
    return queries == number


@needs("query_length")
def query_length_below(limit: int, queries: int) -> bool:
    """Hold where there are fewer queries."""
    return queries < limit


@needs("query_length", "key_length")
def lengths_not_multiple(factor: int, queries: int, keys: int) -> bool:
    """Hold where a length is no multiple of a factor."""
    return bool(queries % factor or keys % factor)


@needs("key_length")
def key_length(number: int, keys: int) -> bool:
    """Hold where there are so many keys."""
    return keys == number


@needs("key_length")
def key_length_not_multiple(factor: int, keys: int) -> bool:
    """Hold where the number of keys is no multiple of a factor."""
    return keys % factor != 0


@needs("batches", "heads", "query_length")
def few_blocks(batches: tuple[int, ...], heads: tuple[int, ...], queries: int) -> bool:
    """Hold where batch times heads is under 60 and blocks of 64 queries would make twice as many, as 2.0 reckoned."""
    rows = batches[0] * heads[0]
    return rows < 60 and rows * (queries // 64) // 2 >= rows


@needs("batches", "heads", "query_length")
def rows_over_queries(factor: int, batches: tuple[int, ...], heads: tuple[int, ...], queries: int) -> bool:
    """Hold where batch times heads times a factor is above the query length, as 2.1 reckoned."""
    return factor * batches[0] * heads[0] > queries
