"""Conditions on an SDPA call other than its shapes: facts beside it, the device, layout, types, mask and flags.

Each is a word of the rules in TOML, by the name of its function; conditions.py says how they are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.attention.backends.condition import needing

if TYPE_CHECKING:
    from tracekit.attention.backends.condition import Condition

CALLS: dict[str, Condition] = {}
"""Every condition of this file by name."""

needs = needing(CALLS)


@needs()
def on(_fact: str, value: object) -> bool:
    """Hold where a fact is true."""
    return bool(value)


@needs()
def off(_fact: str, value: object) -> bool:
    """Hold where a fact is false."""
    return not value


@needs("cudnn_version")
def cudnn_from(least: int, version: int) -> bool:
    """Hold from a version of cuDNN on, written as cuDNN writes it: 91002 for 9.10.2, 8902 for 8.9.2."""
    return version >= least


@needs("cudnn_version")
def cudnn_below(limit: int, version: int) -> bool:
    """Hold below a version of cuDNN."""
    return version < limit


@needs("cuda_version")
def cuda_from(least: int, version: int) -> bool:
    """Hold from a major version of CUDA on."""
    return version >= least


@needs("system")
def system(name: str, value: str) -> bool:
    """Hold on a system, such as Windows."""
    return value == name


@needs("ran")
def ran(backend: str, value: str) -> bool:
    """Hold where this backend ran."""
    return value == backend


@needs("sm")
def sm(bounds: list[int], value: int) -> bool:
    """Hold where ten times the major plus the minor compute capability lies within bounds, both included."""
    return bounds[0] <= value <= bounds[1]


@needs("sm")
def sm_outside(bounds: list[int], value: int) -> bool:
    """Hold where it does not."""
    return not bounds[0] <= value <= bounds[1]


@needs("sm")
def sm_in(values: list[int], value: int) -> bool:
    """Hold where it is one of some."""
    return value in values


@needs("arch")
def arch_in(names: list[str], arch: str) -> bool:
    """Hold on one of some AMD architectures."""
    return arch in names


@needs("arch")
def arch_not_in(names: list[str], arch: str) -> bool:
    """Hold on none of some AMD architectures."""
    return arch not in names


@needs("last_strides")
def last_stride_not_one(strides: tuple[int, ...]) -> bool:
    """Hold where neighbours along the head_dim of a tensor don't lie side by side."""
    return any(each != 1 for each in strides)


@needs("shapes", "strides")
def not_contiguous(shapes: tuple[tuple[int, ...], ...], strides: tuple[tuple[int, ...], ...]) -> bool:
    """Hold where a tensor is not contiguous."""
    return any(not _is_packed(shape, stride) for shape, stride in zip(shapes, strides, strict=True))


@needs("shapes", "strides")
def not_packed(shapes: tuple[tuple[int, ...], ...], strides: tuple[tuple[int, ...], ...]) -> bool:
    """Hold where a tensor is neither [batch, length, heads, head_dim] packed nor a third of such a one fused."""
    return any(not _is_by_token(shape, stride) for shape, stride in zip(shapes, strides, strict=True))


@needs("dtypes")
def dtype_not_in(names: list[str], dtypes: tuple[str, ...]) -> bool:
    """Hold where a tensor is of another type, or the three are not of one."""
    return len(set(dtypes)) > 1 or dtypes[0] not in names


@needs("dtypes")
def dtype_in(names: list[str], dtypes: tuple[str, ...]) -> bool:
    """Hold where all three tensors are of one of these types."""
    return len(set(dtypes)) == 1 and dtypes[0] in names


@needs("dtypes")
def dtypes_differ(dtypes: tuple[str, ...]) -> bool:
    """Hold where the three tensors are not of one type."""
    return len(set(dtypes)) > 1


@needs("mask")
def mask(value: object) -> bool:
    """Hold where a mask is given."""
    return bool(value)


@needs("mask_shape", "batches", "heads", "query_length", "key_length")
def mask_shape_odd(
    shape: tuple[int, ...], batches: tuple[int, ...], heads: tuple[int, ...], queries: int, keys: int
) -> bool:
    """Hold where a mask has neither two nor four dims, or one that is neither full nor 1."""
    full = (batches[0], heads[0], queries, keys)
    fits = len(shape) in {2, 4} and all(has in {1, each} for has, each in zip(shape, full[-len(shape) :], strict=True))
    return not fits


@needs("mask_shape")
def mask_for_all_queries(shape: tuple[int, ...]) -> bool:
    """Hold where one row of the mask serves all queries: it hides keys, as padding does."""
    return len(shape) >= 2 and shape[-2] == 1


@needs("mask_last_stride")
def mask_stride_not_one(stride: int) -> bool:
    """Hold where neighbours along the mask's last dim don't lie side by side."""
    return stride != 1


@needs("mask_dtype", "dtypes")
def mask_dtype_foreign(allowed: list[str], dtype: str, dtypes: tuple[str, ...]) -> bool:
    """Hold where a mask is neither of the queries' type nor of one of these."""
    return dtype != dtypes[0] and dtype not in allowed


@needs("dropout_p")
def dropout(probability: float) -> bool:
    """Hold where dropout is asked for."""
    return probability > 0


@needs("dropout_p")
def dropout_not_multiple_of(fraction: int, probability: float) -> bool:
    """Hold where dropout's probability is no multiple of one over this."""
    return (probability * fraction) % 1 != 0


@needs("is_causal")
def is_causal(value: object) -> bool:
    """Hold where is_causal is asked for."""
    return bool(value)


@needs("enable_gqa")
def gqa(value: object) -> bool:
    """Hold where enable_gqa is set."""
    return bool(value)


@needs("needs_grad")
def needs_grad(value: object) -> bool:
    """Hold where an input needs a gradient."""
    return bool(value)


@needs("device")
def always(_device: str) -> bool:
    """Hold whatever the call is."""
    return True


def _is_packed(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether strides are those of a tensor laid out densely; dims of 1 may have any."""
    wanted = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != wanted:
            return False
        wanted *= size
    return True


def _is_by_token(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    if len(shape) != 4 or len(strides) != 4:
        return False
    _, heads, length, dim = shape
    step = heads * dim
    return strides in {(length * step, dim, step, 1), (3 * length * step, dim, 3 * step, 1)}
