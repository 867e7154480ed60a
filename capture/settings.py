"""What a built-in recording is asked to do, and whether it can be done at all.

Owns the defaults, and the faults that need no torch to see. Must not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.errors import TracekitError

from .lengths import Lengths, parse

MODES = ("prefill", "decode", "train")
IMPLEMENTATIONS = ("auto", "math", "flash", "efficient", "cudnn", "overrideable", "naive")
MASKS = ("auto", "dense", "causal", "none")
CACHES = ("dynamic", "static")
DEVICES = ("cpu", "cuda")
DTYPES = ("float32", "bfloat16", "float16")

_DEFAULT_BATCH, _DEFAULT_SEQ = 4, 128
_MLP_MULTIPLE = 64


@dataclass(frozen=True)
class Settings:
    """A recording as it is asked for, one field an option; None stands for what depends on the rest."""

    mode: str = "prefill"
    batch: int | None = None
    seq: int | None = None
    heads: int = 8
    kv_heads: int | None = None
    head_dim: int = 32
    layers: int = 2
    vocab: int = 1000
    dtype: str | None = None
    impl: str = "auto"
    lengths: str | None = None
    seed: int = 0
    mask: str = "auto"
    cache: str | None = None
    steps: int = 3
    warmup: int = 2
    device: str | None = None


@dataclass(frozen=True)
class Shape:
    """The built-in decoder's sizes."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int

    @property
    def hidden(self) -> int:
        """Return the width of the residual stream."""
        return self.heads * self.head_dim

    @property
    def intermediate(self) -> int:
        """Return the MLP's width: 8/3 of `hidden`, as a gated MLP has for as many weights, rounded up."""
        return -(-8 * self.hidden // (3 * _MLP_MULTIPLE)) * _MLP_MULTIPLE


@dataclass(frozen=True)
class Plan:
    """A recording with nothing left open but what the device decides.

    `seq` is the padded length: of the batch, or in decode of the context that the cache starts with.
    """

    mode: str
    batch: int
    seq: int
    shape: Shape
    implementation: str
    lengths: Lengths | None
    seed: int
    mask: str
    cache: str | None
    steps: int
    warmup: int

    @property
    def mask_kind(self) -> str:
        """Return what the mask lets be seen: `causal`, `causal_padding`, `padding` or `none`."""
        if self.mask != "dense":
            return self.mask
        if self.mode == "decode":
            return "padding" if self.lengths or self.cache == "static" else "none"
        return "causal_padding" if self.lengths else "causal"

    def draw(self, number: int) -> tuple[int, ...]:
        """Return the true lengths of the batch of step `number`."""
        return self.lengths.draw(self.batch, self.seq, self.seed, number) if self.lengths else (self.seq,) * self.batch


def plan(asked: Settings) -> Plan:
    """Fill in what was left open. Raises TracekitError for what can't be recorded on any device."""
    lengths = parse(asked.lengths) if asked.lengths is not None else None
    listed = (lengths and lengths.listed) or ()
    batch = asked.batch or len(listed) or _DEFAULT_BATCH
    seq = asked.seq or max((*listed, 0)) or _DEFAULT_SEQ
    if lengths:
        lengths.check(batch, seq)
    cache = _cache(asked)
    return Plan(
        mode=asked.mode,
        batch=batch,
        seq=seq,
        shape=_shape(asked),
        implementation=asked.impl,
        lengths=lengths,
        seed=asked.seed,
        mask=_mask(asked, cache),
        cache=cache,
        steps=asked.steps,
        warmup=asked.warmup,
    )


def _shape(asked: Settings) -> Shape:
    kv_heads = asked.kv_heads or asked.heads
    if asked.heads % kv_heads:
        raise TracekitError(f"--heads {asked.heads} is no multiple of --kv-heads {kv_heads}", "change one of the two")
    if asked.head_dim % 2:
        raise TracekitError(f"--head-dim {asked.head_dim} is odd", "rotary embeddings need an even one")
    return Shape(asked.layers, asked.heads, kv_heads, asked.head_dim, asked.vocab)


def _cache(asked: Settings) -> str | None:
    if asked.mode == "decode":
        return asked.cache or "dynamic"
    if asked.cache:
        raise TracekitError(f"--mode {asked.mode} keeps no cache", "leave --cache out, or choose --mode decode")
    return None


def _mask(asked: Settings, cache: str | None) -> str:
    if asked.mode != "decode":
        return ("causal" if asked.lengths is None else "dense") if asked.mask == "auto" else asked.mask
    if asked.mask == "auto":
        return "none" if asked.lengths is None and cache == "dynamic" else "dense"
    if asked.mask == "causal":
        problem = "--mask causal would show the one query of a decode step the first key alone"
        raise TracekitError(problem, "leave --mask out")
    if asked.mask == "none" and cache == "static":
        problem = "--mask none would show a decode step the empty slots of the static cache"
        raise TracekitError(problem, "leave --mask out, or choose --cache dynamic")
    return asked.mask
