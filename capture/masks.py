"""Boolean masks: which keys each query may see.

Owns their making. The function's name is what a trace shows, and the one that transformer libraries use.
"""

from __future__ import annotations

import torch
from torch import Tensor


def create_causal_mask(slots: Tensor, keys: int, first: Tensor | None = None, end: Tensor | None = None) -> Tensor:
    """Return [B or 1, 1, n, keys], True where the query in a slot of `slots` [n] may see a key.

    It sees the keys up to its own slot; of sequence b those from `first[b]` on (padded on the left) and before
    `end[b]` (padded on the right), where these [B] are given.
    """
    key = torch.arange(keys, device=slots.device)
    allowed = (key <= slots[:, None])[None, None]
    if first is not None:
        allowed = allowed & (key >= first[:, None, None, None])
    if end is not None:
        allowed = allowed & (key < end[:, None, None, None])
    return allowed
