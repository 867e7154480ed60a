"""Keys and values of earlier tokens, kept for decoding: one that grows, and one that was made at full size.

Owns where the new token's keys and values go; nothing else of attention.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class KVCache(Protocol):
    """Keys and values of all layers, each [batch, kv_heads, slots, head_dim]."""

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of new tokens to a layer and return all that attention must read."""


class DynamicCache:
    """A cache that grows by concatenation: each step allocates it anew, one token longer."""

    def __init__(self, context: list[tuple[Tensor, Tensor]]) -> None:
        """Take over the context, a pair of keys and values a layer, and keep no other reference to it."""
        self._layers = context

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append the new keys and values and return the longer ones."""
        keys, values = self._layers[layer]
        self._layers[layer] = torch.cat((keys, key), dim=2), torch.cat((values, value), dim=2)
        return self._layers[layer]


class StaticCache:
    """A cache of fixed capacity: the new token is written into its slot, and attention reads every slot."""

    def __init__(self, layers: list[tuple[Tensor, Tensor]], slots: Tensor) -> None:
        """Take a pair of keys and values a layer at full capacity; `slots` are the free ones, in order."""
        self._layers = layers
        self._slots = slots
        self._written = 0

    def advance(self) -> None:
        """Make the next free slot the one that `update` writes, until the next call."""
        self._written += 1

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new keys and values into the slot and return all slots."""
        slot = self._slots[self._written - 1 : self._written]
        keys, values = self._layers[layer]
        return keys.index_copy_(2, slot, key), values.index_copy_(2, slot, value)
