"""The size of a model, read off the module itself.

Owns the names under which configurations of transformer libraries keep a model's shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .facts import ModelFacts

if TYPE_CHECKING:
    from torch import nn

# source: huggingface/transformers models/llama/configuration_llama.py
_NAMES = {
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "hidden": "hidden_size",
    "intermediate": "intermediate_size",
    "vocab": "vocab_size",
}


def model_facts(model: nn.Module) -> ModelFacts:
    """Return parameters, bytes and dtype of a module, and its shape where it has a `config` that tells it."""
    parameters = list(model.parameters())
    config = getattr(model, "config", None)
    told = {fact: getattr(config, name, None) for fact, name in _NAMES.items()}
    return ModelFacts(
        **{fact: value if isinstance(value, int) else None for fact, value in told.items()},
        dtype=str(parameters[0].dtype).removeprefix("torch.") if parameters else None,
        parameters=sum(parameter.numel() for parameter in parameters),
        parameter_bytes=sum(parameter.numel() * parameter.element_size() for parameter in parameters),
    )
