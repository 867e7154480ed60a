"""The ways to compute attention: SDPA with one of its backends, and the chain of plain ops.

Owns what `--impl` stands for and how torch says that it has no such kernel. A backend is chosen by torch's own
switch, so that the trace shows what a model with that switch would show.
"""

from __future__ import annotations

import re
import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor
from torch.nn import attention

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Sequence

_BACKENDS = {
    "math": attention.SDPBackend.MATH,
    "flash": attention.SDPBackend.FLASH_ATTENTION,
    "efficient": attention.SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": attention.SDPBackend.CUDNN_ATTENTION,
    "overrideable": attention.SDPBackend.OVERRIDEABLE,
}
# source: pytorch aten/src/ATen/native/transformers/cuda/sdp_utils.cpp: the memory-efficient kernel wants equal heads
_WITHOUT_GROUPS = frozenset({"efficient"})
_MAX_REASONS = 600  # characters
# source: pytorch aten/src/ATen/native/transformers/{cuda/sdp_utils,sdp_utils_cpp}.cpp, .../native/cudnn/MHA.cpp
_REFUSALS = ("No available kernel", "No viable backend", "not implemented for", "cudnn_frontend")
_SAYS_NOTHING = re.compile("No available kernel|No viable backend|not used because:$")


class Attend(Protocol):
    """Attention over q [B, Hq, Nq, D] and k, v [B, Hkv, Nk, D]; a mask is boolean, True where a key may be seen."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, is_causal: bool) -> Tensor:
        """Return [B, Hq, Nq, D]."""


@dataclass(frozen=True)
class Implementation:
    """A way to compute attention by its name, and the torch backend that it forces, if any."""

    name: str
    attend: Attend
    backend: attention.SDPBackend | None = None

    def forced(self) -> AbstractContextManager[None]:
        """Return a context in which torch takes this backend and no other."""
        return nullcontext() if self.backend is None else attention.sdpa_kernel(self.backend)


def implementation(name: str) -> Implementation:
    """Return an implementation by its name; whether torch has such a kernel, `probe` finds out."""
    if name == "naive":
        return Implementation(name, eager_attention_forward)
    attend = partial(sdpa_attention_forward, repeats=name in _WITHOUT_GROUPS)
    return Implementation(name, attend, _BACKENDS.get(name))


def repeat_kv(x: Tensor, groups: int) -> Tensor:
    """Return [B, Hkv, N, D] with each head `groups` times in a row, which copies unless `groups` is 1."""
    if groups == 1:
        return x
    return x[:, :, None].expand(-1, -1, groups, -1, -1).flatten(1, 2)


def sdpa_attention_forward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, is_causal: bool, repeats: bool
) -> Tensor:
    """Compute attention with one SDPA call; with `repeats`, grouped heads are made equal before it."""
    groups = q.shape[1] // k.shape[1]
    if repeats:
        k, v, groups = repeat_kv(k, groups), repeat_kv(v, groups), 1
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal, enable_gqa=groups > 1)


def eager_attention_forward(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, is_causal: bool) -> Tensor:
    """Compute attention op by op: matmul, scale, mask, softmax, matmul."""
    groups = q.shape[1] // k.shape[1]
    k, v = repeat_kv(k, groups), repeat_kv(v, groups)
    scores = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return torch.matmul(torch.softmax(scores, dim=-1), v)


def probe(chosen: Implementation, q: Tensor, kv: Tensor, mask: Tensor | None, *, is_causal: bool) -> None:
    """Attend once; raises TracekitError, with torch's reasons, if there is no such kernel for these tensors."""
    with warnings.catch_warnings(record=True) as reasons:
        warnings.simplefilter("always")
        try:
            with chosen.forced():
                chosen.attend(q, kv, kv, mask, is_causal=is_causal)
        except RuntimeError as error:
            if not any(sign in str(error) for sign in _REFUSALS):
                raise
            told = [str(reason.message) for reason in reasons]
            raise _refused(chosen.name, q, [*told, *str(error).splitlines()[:1]]) from error


def _refused(name: str, q: Tensor, reasons: Sequence[str]) -> TracekitError:
    """Return torch's reasons in one line, without the places in its source that it adds to each."""
    plain = [reason.split(" (Triggered internally")[0].strip().rstrip(".") for reason in reasons]
    said = "; ".join(reason for reason in dict.fromkeys(plain) if not _SAYS_NOTHING.search(reason))
    dtype = str(q.dtype).removeprefix("torch.")
    problem = f"torch {torch.__version__} has no {name} attention for this {dtype} call on {q.device.type}"
    remedy = "choose another --impl: auto takes what there is, math and naive always run"
    return TracekitError(f"{problem} ({said[:_MAX_REASONS]})" if said else problem, remedy)
