"""The built-in decoder: the shape of today's language models, small enough to read.

Owns the model alone: how attention is computed, what masks and caches hold and what a step does lies elsewhere.
Classes and functions carry the names that the field uses, since names are what a trace shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor, nn

if TYPE_CHECKING:
    from .implementations import Attend
    from .kv_cache import KVCache
    from .settings import Shape

_ROPE_BASE, _NORM_EPSILON = 10_000.0, 1e-6


@dataclass(frozen=True)
class AttentionInputs:
    """What the attention of every layer is given beside the hidden states.

    `cos` and `sin` are [B or 1, 1, n, head_dim]; the mask is boolean, [B or 1, 1, n, keys], or None.
    """

    cos: Tensor
    sin: Tensor
    mask: Tensor | None
    is_causal: bool
    cache: KVCache | None


class RMSNorm(nn.Module):
    """Scale each vector to a root mean square of 1, computed in float32, then by a learned weight."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Return [.., dim] as it came, normalised over the last axis."""
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + _NORM_EPSILON)
        return self.weight * wide.to(x.dtype)


class RotaryEmbedding(nn.Module):
    """The angles by which queries and keys are turned: they grow with the position."""

    rates: Tensor

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        self.register_buffer("rates", _ROPE_BASE**-exponents, persistent=False)

    def forward(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return cos and sin [.., 1, n, head_dim] of positions [.., n]."""
        angles = positions[..., None, :, None].to(torch.float32) * self.rates
        both = torch.cat((angles, angles), dim=-1)
        return both.cos().to(dtype), both.sin().to(dtype)


def rotate_half(x: Tensor) -> Tensor:
    """Return [.., head_dim] with its halves swapped and the new first one negated."""
    low, high = x.chunk(2, dim=-1)
    return torch.cat((-high, low), dim=-1)


def apply_rotary_pos_emb(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Return q and k [B, H, n, head_dim] as they came, turned."""
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


class Attention(nn.Module):
    """Self-attention with grouped heads."""

    def __init__(self, shape: Shape, layer: int, attend: Attend) -> None:
        super().__init__()
        self.layer, self.attend, self.head_dim = layer, attend, shape.head_dim
        kv_dim = shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.k_proj = nn.Linear(shape.hidden, kv_dim, bias=False)
        self.v_proj = nn.Linear(shape.hidden, kv_dim, bias=False)
        self.o_proj = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def forward(self, x: Tensor, given: AttentionInputs) -> Tensor:
        """Return [B, n, hidden] of the same shape as `x`."""
        q, k, v = (
            projection(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = apply_rotary_pos_emb(q, k, given.cos, given.sin)
        if given.cache is not None:
            k, v = given.cache.update(self.layer, k, v)
        out = self.attend(q, k, v, given.mask, is_causal=given.is_causal)
        mixed: Tensor = self.o_proj(out.transpose(1, 2).flatten(-2))
        return mixed


class GatedMLP(nn.Module):
    """The feed-forward block: a SiLU gate times an up projection, projected down."""

    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, intermediate, bias=False)
        self.up_proj = nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, n, hidden] of the same shape as `x`."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class DecoderLayer(nn.Module):
    """Attention and MLP, each behind a norm and added to the residual stream."""

    def __init__(self, shape: Shape, layer: int, attend: Attend) -> None:
        super().__init__()
        self.input_norm = RMSNorm(shape.hidden)
        self.attention = Attention(shape, layer, attend)
        self.post_attention_norm = RMSNorm(shape.hidden)
        self.mlp = GatedMLP(shape.hidden, shape.intermediate)

    def forward(self, x: Tensor, given: AttentionInputs) -> Tensor:
        """Return [B, n, hidden] of the same shape as `x`."""
        x = x + self.attention(self.input_norm(x), given)
        out: Tensor = x + self.mlp(self.post_attention_norm(x))
        return out


class Decoder(nn.Module):
    """Token embedding, the layers and a last norm."""

    def __init__(self, shape: Shape, attend: Attend) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab, shape.hidden)
        self.rotary = RotaryEmbedding(shape.head_dim)
        self.layers = nn.ModuleList(DecoderLayer(shape, layer, attend) for layer in range(shape.layers))
        self.norm = RMSNorm(shape.hidden)

    def forward(
        self, tokens: Tensor, positions: Tensor, mask: Tensor | None, *, is_causal: bool, cache: KVCache | None
    ) -> Tensor:
        """Return [B, n, hidden] of token ids [B, n] at positions [B or 1, n]."""
        x: Tensor = self.embedding(tokens)
        cos, sin = self.rotary(positions, x.dtype)
        given = AttentionInputs(cos, sin, mask, is_causal, cache)
        for layer in self.layers:
            x = layer(x, given)
        out: Tensor = self.norm(x)
        return out


class DecoderForCausalLM(nn.Module):
    """The decoder and its projection to the vocabulary."""

    def __init__(self, shape: Shape, attend: Attend) -> None:
        super().__init__()
        self.decoder = Decoder(shape, attend)
        self.lm_head = nn.Linear(shape.hidden, shape.vocab, bias=False)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Return logits [B, n, vocab] of token ids [B, n] at positions [B or 1, n]."""
        logits: Tensor = self.lm_head(self.decoder(tokens, positions, mask, is_causal=is_causal, cache=cache))
        return logits


def build(shape: Shape, attend: Attend, *, device: str, dtype: torch.dtype, seed: int) -> DecoderForCausalLM:
    """Return a decoder with random weights, made where and in the dtype in which it will run."""
    torch.manual_seed(seed)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            return DecoderForCausalLM(shape, attend)
    finally:
        torch.set_default_dtype(before)
