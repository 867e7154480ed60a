"""What a recorded step does: prefill a batch, decode one token, or train on a batch.

Owns batches, their padding and the order of calls in a step. A step with the same number does the same work in every
pass, so that the passes with and without the profiler can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor

from .facts import StepFacts
from .implementations import probe
from .kv_cache import DynamicCache, KVCache, StaticCache
from .masks import create_causal_mask

if TYPE_CHECKING:
    from .implementations import Implementation
    from .model import DecoderForCausalLM
    from .settings import Plan

_IGNORED = -100
"""The target that cross entropy leaves out, torch's default."""


class Workload(Protocol):
    """Steps by number, and a way back to the state before step 0."""

    def reset(self) -> None:
        """Make the state before step 0 anew; called before each pass, outside of all timing."""

    def step(self, number: int) -> StepFacts:
        """Do the work of a step and say what it worked on."""


@dataclass(frozen=True)
class Batch:
    """Sequences padded on the right: token ids and targets [B, seq], and the true lengths."""

    tokens: Tensor
    targets: Tensor
    lengths: tuple[int, ...]
    ends: Tensor


class Sequences:
    """Whole padded sequences: prefill, and the forward half of training."""

    def __init__(self, plan: Plan, model: DecoderForCausalLM, device: str) -> None:
        """Make the batches of all steps, so that a step begins with its data on the device."""
        self.plan, self.model = plan, model
        draws = torch.Generator().manual_seed(plan.seed)
        self.batches = [_batch(plan, number, draws, device) for number in range(plan.steps)]

    def reset(self) -> None:
        """Leave all as it is: these steps keep no state that changes their work."""

    def step(self, number: int) -> StepFacts:
        """Run the model over the padded batch, without gradients."""
        batch = self.batch(number)
        with torch.no_grad():
            self.logits(batch)
        return self.facts(batch)

    def batch(self, number: int) -> Batch:
        """Return the batch of a step."""
        return self.batches[number % len(self.batches)]

    def logits(self, batch: Batch) -> Tensor:
        """Return the logits [B, seq, vocab] of a batch, masked as planned."""
        positions = torch.arange(self.plan.seq, device=batch.tokens.device)
        mask = None
        if self.plan.mask == "dense":
            mask = create_causal_mask(positions, self.plan.seq, end=batch.ends if self.plan.lengths else None)
        out: Tensor = self.model(batch.tokens, positions[None], mask, is_causal=self.plan.mask == "causal")
        return out

    def facts(self, batch: Batch) -> StepFacts:
        """Return what a step on this batch worked on."""
        return StepFacts(batch.lengths, self.plan.seq, self.plan.mask, self.plan.mask_kind)


class Training(Sequences):
    """Training steps: forward, cross entropy over the real tokens, backward, AdamW."""

    def __init__(self, plan: Plan, model: DecoderForCausalLM, device: str) -> None:
        super().__init__(plan, model, device)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(self, number: int) -> StepFacts:
        """Train on the padded batch."""
        batch = self.batch(number)
        logits = self.logits(batch).flatten(0, 1)
        loss = F.cross_entropy(logits.to(torch.float32), batch.targets.flatten(), ignore_index=_IGNORED)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return self.facts(batch)


class Decoding:
    """Decode steps: one token a sequence, after a context of random keys and values, padded on the left."""

    def __init__(self, plan: Plan, model: DecoderForCausalLM, device: str) -> None:
        """Prepare; the cache is made by `reset`."""
        self.plan, self.model, self.device = plan, model, device
        self.dtype = model.lm_head.weight.dtype
        self.contexts = plan.draw(0)
        self.capacity = plan.seq + max(plan.steps, plan.warmup)
        self.slots = torch.arange(plan.seq, self.capacity, device=device)
        self.positions = torch.tensor(self.contexts, device=device)[:, None]
        self.firsts = plan.seq - self.positions[:, 0]
        self.cache: KVCache | None = None

    def reset(self) -> None:
        """Forget all decoded tokens and fill the cache with a context again, the same each time."""
        self.cache = None  # frees the old one first
        draws = torch.Generator(self.device).manual_seed(self.plan.seed)
        self.tokens = torch.randint(self.plan.shape.vocab, (self.plan.batch, 1), generator=draws, device=self.device)
        slots = self.plan.seq if self.plan.cache == "dynamic" else self.capacity
        size = (self.plan.batch, self.plan.shape.kv_heads, slots, self.plan.shape.head_dim)

        def filled() -> Tensor:
            return torch.randn(size, generator=draws, device=self.device, dtype=self.dtype)

        layers = [(filled(), filled()) for _ in range(self.plan.shape.layers)]
        self.cache = DynamicCache(layers) if self.plan.cache == "dynamic" else StaticCache(layers, self.slots)

    def step(self, number: int) -> StepFacts:
        """Decode one token of each sequence greedily and keep it for the next step."""
        if isinstance(self.cache, StaticCache):
            self.cache.advance()
        keys = self.keys(number)
        with torch.no_grad():
            mask = self.mask(number)
            logits = self.model(self.tokens, self.positions + number, mask, cache=self.cache)
            self.tokens = logits[:, -1:].argmax(-1)
        lengths = tuple(context + number + 1 for context in self.contexts)
        return StepFacts(lengths, keys, self.plan.mask, self.plan.mask_kind, query_length=1, padding_side="left")

    def keys(self, number: int) -> int:
        """Return how many slots attention reads in a step."""
        return self.plan.seq + number + 1 if self.plan.cache == "dynamic" else self.capacity

    def mask(self, number: int) -> Tensor | None:
        """Return the mask of a step, as planned."""
        if self.plan.mask != "dense":
            return None
        slot = self.slots[number : number + 1]
        return create_causal_mask(slot, self.keys(number), first=self.firsts if self.plan.lengths else None)


def workload(plan: Plan, model: DecoderForCausalLM, device: str) -> Workload:
    """Return the planned steps on a model."""
    kinds: dict[str, type[Sequences | Decoding]] = {"prefill": Sequences, "decode": Decoding, "train": Training}
    return kinds[plan.mode](plan, model, device)


def check_attention(plan: Plan, chosen: Implementation, device: str, dtype: torch.dtype) -> None:
    """Attend once to tensors like those of step 0; raises TracekitError if there is no such kernel for them."""
    queries = 1 if plan.mode == "decode" else plan.seq
    keys = plan.seq + (plan.mode == "decode")
    needs_grad = plan.mode == "train"
    sizes = ((plan.shape.heads, queries), (plan.shape.kv_heads, keys))
    q, kv = (
        torch.zeros(
            plan.batch, heads, tokens, plan.shape.head_dim, device=device, dtype=dtype, requires_grad=needs_grad
        )
        for heads, tokens in sizes
    )
    mask = torch.ones(plan.batch, 1, queries, keys, dtype=torch.bool, device=device) if plan.mask == "dense" else None
    with torch.set_grad_enabled(needs_grad):
        probe(chosen, q, kv, mask, is_causal=plan.mask == "causal")


def _batch(plan: Plan, number: int, draws: torch.Generator, device: str) -> Batch:
    lengths = plan.draw(number)
    ends = torch.tensor(lengths)
    drawn = torch.randint(plan.shape.vocab, (plan.batch, plan.seq + 1), generator=draws)
    padding = torch.arange(plan.seq) >= ends[:, None]
    tokens, targets = drawn[:, :-1].masked_fill(padding, 0), drawn[:, 1:].masked_fill(padding, _IGNORED)
    return Batch(tokens.to(device), targets.to(device), lengths, ends.to(device))
