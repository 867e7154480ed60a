"""Traces typed as trees: modules and functions hold ops, ops hold ops and kernels, and times follow from the order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.build import Event, event, tables

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

GEMM = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn"
FLASH = (
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t>>"
)
FLASH_BACKWARD = FLASH.replace("flash_fwd", "flash_bwd_dq_dk_dv_loop_seqk")
SOFTMAX = "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>>"
)
COPY = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>"
)


class Writer:
    """Events so far, the time of the next one, and the numbers given out."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now = 0
        self.numbers = 0

    def number(self) -> int:
        """Return a number that was not given out."""
        self.numbers += 1
        return self.numbers


if TYPE_CHECKING:
    Part = Callable[[Writer, int | None], None]


def module(name: str, *inside: Part) -> Part:
    """Make a call of an nn.Module, such as LlamaAttention_0."""
    return function(f"nn.Module: {name}", *inside)


def function(name: str, *inside: Part) -> Part:
    """Make a call of a Python function, such as model.py(1): forward."""

    def write(to: Writer, frame: int | None) -> None:
        number = to.number()
        _around(to, "python_function", name, {"Python id": number, "Python parent id": frame}, inside, number)

    return write


def op(name: str, *inside: Part, sequence: int | None = None) -> Part:
    """Make an op; `sequence` is the number that an autograd node shares with the op that made it."""

    def write(to: Writer, frame: int | None) -> None:
        args = {} if sequence is None else {"Sequence number": sequence}
        _around(to, "cpu_op", name, args, inside, frame)

    return write


def mark(name: str, *inside: Part) -> Part:
    """Make a user annotation, such as an optimizer's step."""
    return lambda to, frame: _around(to, "user_annotation", name, {}, inside, frame)


def kernel(name: str) -> Part:
    """Make a launch and its kernel."""
    return _work("kernel", name, "cudaLaunchKernel")


def memset() -> Part:
    """Make a call that sets device memory, and its work."""
    return _work("gpu_memset", "Memset (Device)", "cudaMemsetAsync")


def orphan(name: str) -> Part:
    """Make a kernel whose launch is not in the trace."""

    def write(to: Writer, _: int | None) -> None:
        args = {"device": 0, "stream": 7, "correlation": to.number()}
        to.events.append(event("kernel", name, 100_000 + to.now, 1, pid=0, tid=7, args=args))
        to.now += 2

    return write


def linear(kernel_name: str = GEMM, sequence: int | None = None) -> Part:
    """Make a linear layer's op with its matrix product."""
    product = op("aten::addmm", kernel(kernel_name), sequence=sequence)
    return op("aten::linear", op("aten::t", op("aten::transpose")), product)


def sdpa(sequence: int | None = None) -> Part:
    """Make an attention by the flash backend of SDPA."""
    inner = op("aten::_flash_attention_forward", kernel(FLASH))
    call = op("aten::_scaled_dot_product_flash_attention", inner, sequence=sequence)
    return op("aten::scaled_dot_product_attention", call)


def backward(node: str, sequence: int, *inside: Part) -> Part:
    """Make what the autograd engine runs for the node of an op."""
    around = f"autograd::engine::evaluate_function: {node}"
    return op(around, op(node, *inside, sequence=sequence), sequence=sequence)


def events(*parts: Part) -> list[Event]:
    """Write the events of trees, one after another on one thread."""
    to = Writer()
    for part in parts:
        part(to, None)
    return to.events


def roles(*parts: Part) -> list[tuple[str, str]]:
    """Return role and confidence of every kernel, in order of launch."""
    return [(role, sure) for role, sure, _ in kernels(*parts).select("role", "role_confidence", "name").iter_rows()]


def kernels(*parts: Part) -> pl.DataFrame:
    """Return the table of kernels."""
    return tables(events(*parts))["kernel"]


def _around(
    to: Writer, category: str, name: str, args: dict[str, Any], inside: tuple[Part, ...], frame: int | None
) -> None:
    start = to.now
    row = event(category, name, start, 0, args=args)
    to.events.append(row)
    to.now += 1
    for part in inside:
        part(to, frame)
    to.now += 1
    row["dur"] = to.now - start


def _work(category: str, name: str, call: str) -> Part:
    def write(to: Writer, _: int | None) -> None:
        number = to.number()
        args = {"correlation": number}
        to.events.append(event("cuda_runtime", call, to.now, 1, args=args))
        to.events.append(
            event(category, name, 100_000 + to.now, 1, pid=0, tid=7, args={**args, "device": 0, "stream": 7})
        )
        to.now += 2

    return write
