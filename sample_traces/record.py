"""Record the sample trace of this folder: three training steps of a two-layer decoder on the CPU.

Owns the model, the recording and the cleaning of what names the machine. It is a script beside the data it
makes: the toolkit never imports it, and it changes nothing in a trace but the strings that `clean` names.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, schedule

from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Mapping

SEED = 0
WAIT, WARMUP, ACTIVE = 1, 1, 3
MACHINE_KEYS = (
    "host_name",
    "PT_PROFILER_JOB_NAME",
    "PT_PROFILER_JOB_VERSION",
    "PT_PROFILER_JOB_ATTEMPT_INDEX",
)

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_MACHINE_ENTRY = re.compile(rf'\s*"(?:{"|".join(MACHINE_KEYS)})"\s*:\s*{_STRING.pattern}\s*,')
_ABSOLUTE_PATH = re.compile(r"(?<![\w.\])>-])(?:[A-Za-z]:)?/+[\w~]")


@dataclass(frozen=True)
class Sizes:
    """The shape of the model and of its batch; `kv_heads` below `heads` makes the heads grouped."""

    batch: int = 2
    tokens: int = 64
    dim: int = 64
    heads: int = 4
    kv_heads: int = 2
    hidden: int = 192
    layers: int = 2
    vocabulary: int = 256

    @property
    def head_dim(self) -> int:
        """Return the width of one head."""
        return self.dim // self.heads


class RMSNorm(nn.Module):
    """Scale each vector to a root mean square of 1, then by a learned weight."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Return [.., dim] as it came, normalised over the last axis."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class RotaryEmbedding(nn.Module):
    """Turn queries and keys by an angle that grows with their position."""

    cos: Tensor
    sin: Tensor

    def __init__(self, head_dim: int, tokens: int) -> None:
        super().__init__()
        rates = 10_000.0 ** (-torch.arange(0, head_dim, 2) / head_dim)
        angles = torch.outer(torch.arange(tokens), rates).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x: Tensor) -> Tensor:
        """Return [batch, heads, tokens, head_dim] as it came, turned."""
        low, high = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat((-high, low), dim=-1) * self.sin


class Attention(nn.Module):
    """Causal self-attention with grouped heads, through one SDPA call."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.head_dim = sizes.head_dim
        kv_dim = sizes.kv_heads * sizes.head_dim
        self.q_proj = nn.Linear(sizes.dim, sizes.dim, bias=False)
        self.k_proj = nn.Linear(sizes.dim, kv_dim, bias=False)
        self.v_proj = nn.Linear(sizes.dim, kv_dim, bias=False)
        self.out_proj = nn.Linear(sizes.dim, sizes.dim, bias=False)
        self.rotary = RotaryEmbedding(sizes.head_dim, sizes.tokens)

    def forward(self, x: Tensor) -> Tensor:
        """Return [batch, tokens, dim] of the same shape as `x`."""
        q, k, v = (
            proj(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        out = F.scaled_dot_product_attention(self.rotary(q), self.rotary(k), v, is_causal=True, enable_gqa=True)
        mixed: Tensor = self.out_proj(out.transpose(1, 2).flatten(-2))
        return mixed


class GatedMLP(nn.Module):
    """The feed-forward block: a SiLU gate times an up projection, projected down."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return [batch, tokens, dim] of the same shape as `x`."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class DecoderLayer(nn.Module):
    """Attention and MLP, each behind a norm and added to the residual stream."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(sizes.dim)
        self.attention = Attention(sizes)
        self.mlp_norm = RMSNorm(sizes.dim)
        self.mlp = GatedMLP(sizes.dim, sizes.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Return [batch, tokens, dim] of the same shape as `x`."""
        x = x + self.attention(self.attention_norm(x))
        out: Tensor = x + self.mlp(self.mlp_norm(x))
        return out


class Decoder(nn.Module):
    """Token embedding, the layers, a last norm and the projection to the vocabulary."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.dim)
        self.layers = nn.ModuleList(DecoderLayer(sizes) for _ in range(sizes.layers))
        self.norm = RMSNorm(sizes.dim)
        self.lm_head = nn.Linear(sizes.dim, sizes.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits [batch, tokens, vocabulary] of token ids [batch, tokens]."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.lm_head(self.norm(x))
        return logits


def train_step(model: Decoder, optimizer: torch.optim.Optimizer, tokens: Tensor) -> None:
    """Do one step of next-token training on token ids [batch, tokens + 1]."""
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()


def record(sizes: Sizes, path: Path) -> None:
    """Train for a few steps and have the profiler write the last of them to `path`.

    The schedule runs once and the loop ends with it, so no empty step follows the recorded ones.
    """
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    model = Decoder(sizes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = torch.randint(sizes.vocabulary, (WAIT + WARMUP + ACTIVE, sizes.batch, sizes.tokens + 1))
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
    ) as profiler:
        for tokens in batches:
            train_step(model, optimizer, tokens)
            profiler.step()


def local_prefixes(trace: Path) -> dict[str, str]:
    """Return what stands in a trace's paths for this machine, and what to write instead.

    torch shortens paths under `sys.path` by itself, but `traceName` never, and older versions shorten less.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    places = {
        sysconfig.get_path("purelib"): "site-packages/",
        sysconfig.get_path("platlib"): "site-packages/",
        sysconfig.get_path("stdlib"): f"{version}/",
        sysconfig.get_path("platstdlib"): f"{version}/",
        str(Path(__file__).resolve().parent): "",
        str(trace.parent): "",
    }
    return {f"{Path(place).as_posix()}/": shown for place, shown in places.items()}


def clean(text: str, prefixes: Mapping[str, str]) -> str:
    """Return a trace's text without the machine it was made on; every number keeps its digits.

    Only strings are rewritten, longest prefix first, and the entries of MACHINE_KEYS are left out: parsing
    and writing anew would round times, which need more digits than a float has. Raises TracekitError if an
    absolute path is left.
    """
    longest_first = sorted(prefixes.items(), key=lambda item: -len(item[0]))

    def shown(match: re.Match[str]) -> str:
        string = match[0]
        for prefix, replacement in longest_first:
            string = string.replace(prefix, replacement)
        if found := _ABSOLUTE_PATH.search(string):
            problem = f"the trace still holds an absolute path, {found[0]!r} in {string}"
            raise TracekitError(problem, "add its prefix to local_prefixes")
        return string

    return _STRING.sub(shown, _MACHINE_ENTRY.sub("", text))


def check_output(path: Path, *, force: bool) -> None:
    """Raise TracekitError if `path` can't be written, or holds a file that `force` doesn't give up."""
    if not path.parent.is_dir():
        problem = f"{path.parent} is not a folder"
        raise TracekitError(problem, "create it or choose another output")
    if path.exists() and not force:
        problem = f"{path} exists"
        raise TracekitError(problem, "choose another output or pass --force")


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to `path`, gzipped if its name says so; a crash leaves the old file or none."""
    data = text.encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.tmp-", delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).chmod(0o644)
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def main() -> None:
    """Record, clean and write the trace that the command line asks for."""
    parser = argparse.ArgumentParser(description="Record the sample trace of this folder.")
    parser.add_argument("-o", "--output", type=Path, required=True, help="a .json or .json.gz file to write")
    parser.add_argument("--force", action="store_true", help="replace an output that exists")
    options = parser.parse_args()
    output: Path = options.output
    try:
        check_output(output, force=options.force)
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder, output.name.removesuffix(".gz"))
            record(Sizes(), trace)
            text = clean(trace.read_text("utf-8"), local_prefixes(trace))
        write_atomically(output, text)
    except TracekitError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
