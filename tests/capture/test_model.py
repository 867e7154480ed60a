"""The decoder computes what a decoder must, however attention is computed, masked and cached."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tracekit.capture.implementations import implementation
from tracekit.capture.kv_cache import DynamicCache, StaticCache
from tracekit.capture.masks import create_causal_mask
from tracekit.capture.model import DecoderForCausalLM, RMSNorm, build
from tracekit.capture.settings import Shape

SHAPE = Shape(layers=2, heads=4, kv_heads=2, head_dim=8, vocab=50)
TOKENS = 6


def model(name: str = "auto") -> DecoderForCausalLM:
    """Return a decoder whose weights depend on nothing but the seed."""
    return build(SHAPE, implementation(name).attend, device="cpu", dtype=torch.float64, seed=0)


@pytest.fixture
def tokens() -> Tensor:
    """Return token ids [3, TOKENS]."""
    return torch.randint(SHAPE.vocab, (3, TOKENS), generator=torch.Generator().manual_seed(1))


def logits(decoder: DecoderForCausalLM, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the logits of whole sequences, causal by the mask or, without one, by the flag."""
    positions = torch.arange(tokens.shape[1])[None]
    with torch.no_grad():
        found: Tensor = decoder(tokens, positions, mask, is_causal=mask is None)
    return found


def empty() -> tuple[Tensor, Tensor]:
    """Return keys and values of no token."""
    size = (3, SHAPE.kv_heads, 0, SHAPE.head_dim)
    return torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)


@pytest.mark.parametrize("name", ["math", "flash", "naive", "efficient"])
@pytest.mark.parametrize("masked", [False, True])
def test_every_implementation_gives_the_same_logits(tokens: Tensor, name: str, masked: bool) -> None:  # noqa: FBT001
    mask = create_causal_mask(torch.arange(TOKENS), TOKENS, end=torch.tensor([2, 6, 4])) if masked else None
    torch.testing.assert_close(logits(model(name), tokens, mask), logits(model("auto"), tokens, mask))


def test_a_mask_tensor_that_is_causal_is_the_causal_flag(tokens: Tensor) -> None:
    mask = create_causal_mask(torch.arange(TOKENS), TOKENS)
    torch.testing.assert_close(logits(model(), tokens, mask), logits(model(), tokens))


@pytest.mark.parametrize("masked", [False, True])
def test_padding_on_the_right_changes_nothing_for_real_tokens(tokens: Tensor, masked: bool) -> None:  # noqa: FBT001
    lengths = (2, 6, 4)
    mask = create_causal_mask(torch.arange(TOKENS), TOKENS, end=torch.tensor(lengths)) if masked else None
    padded = logits(model(), tokens, mask)
    for row, length in enumerate(lengths):
        alone = logits(model(), tokens[row : row + 1, :length])
        torch.testing.assert_close(padded[row, :length], alone[0])


def test_decoding_with_a_growing_cache_gives_the_logits_of_the_whole_sequence(tokens: Tensor) -> None:
    decoder, cache = model(), DynamicCache([empty() for _ in range(SHAPE.layers)])
    with torch.no_grad():
        steps = [decoder(tokens[:, at : at + 1], torch.tensor([[at]]), cache=cache)[:, 0] for at in range(TOKENS)]
    torch.testing.assert_close(torch.stack(steps, dim=1), logits(decoder, tokens))


def test_decoding_with_a_static_cache_gives_the_logits_of_the_whole_sequence(tokens: Tensor) -> None:
    size = (3, SHAPE.kv_heads, TOKENS + 2, SHAPE.head_dim)
    layers = [(torch.full(size, 9.0).double(), torch.full(size, 9.0).double()) for _ in range(SHAPE.layers)]
    slots = torch.arange(TOKENS)
    decoder, cache = model(), StaticCache(layers, slots)
    steps = []
    for at in range(TOKENS):
        cache.advance()
        mask = create_causal_mask(slots[at : at + 1], TOKENS + 2)
        with torch.no_grad():
            steps.append(decoder(tokens[:, at : at + 1], torch.tensor([[at]]), mask, cache=cache)[:, 0])
    torch.testing.assert_close(torch.stack(steps, dim=1), logits(decoder, tokens))


def test_masks_show_what_is_real_and_not_later() -> None:
    right = create_causal_mask(torch.arange(3), 3, end=torch.tensor([1, 3]))
    assert right.int().tolist() == [[[[1, 0, 0]] * 3], [[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]]
    left = create_causal_mask(torch.tensor([3]), 5, first=torch.tensor([0, 2]))
    assert left.int().tolist() == [[[[1, 1, 1, 1, 0]]], [[[0, 0, 1, 1, 0]]]]


def test_rms_norm_is_torchs(tokens: Tensor) -> None:
    x = tokens.to(torch.float32)
    expected = torch.nn.functional.rms_norm(x, (TOKENS,), eps=1e-6)
    torch.testing.assert_close(RMSNorm(TOKENS)(x), expected)


def test_equal_seeds_give_equal_weights_and_leave_the_default_dtype() -> None:
    before = torch.get_default_dtype()
    first, second = model().state_dict(), model().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.get_default_dtype() == before
