"""Every row of the attention knowledge is proved by its own example, and the traps of the field by name."""

import re
import tomllib
from importlib import resources
from typing import Any

import pytest

Row = dict[str, str]

ACTIONS = {
    "attention",
    "kv_cache",
    "gemm",
    "softmax",
    "norm",
    "rope",
    "mask",
    "copy",
    "cat",
    "elementwise",
    "reduce",
    "embedding",
    "index",
    "activation",
    "moe",
    "quant",
    "conv",
    "pool",
    "loss",
    "optimizer",
    "comm",
    "sampling",
    "sort",
    "fill",
    "fused",
    "other",
}
OP_PLACES = {
    "attention",
    "mlp",
    "moe",
    "norm",
    "embedding",
    "lm_head",
    "loss",
    "optimizer",
    "comm",
    "conv",
    "rope",
    "sampling",
    "quant",
}
MODULE_PLACES = OP_PLACES - {"optimizer", "comm"} | {"dropout", "linear", "activation", "block", "container", "pool"}


def rows(stem: str, table: str) -> list[Row]:
    """Return the rows of one knowledge file, as written."""
    text = resources.files("tracekit.attention").joinpath(f"{stem}.toml").read_text("utf-8")
    document: dict[str, Any] = tomllib.loads(text)
    assert list(document) == [table]
    found: list[Row] = document[table]
    return found


FAMILIES = rows("families", "family")
OPS = rows("ops", "op")
MODULES = rows("modules", "module")


def family_of(kernel: str) -> Row:
    """Return the first family row that matches a kernel name, or an empty row."""
    return next((row for row in FAMILIES if re.search(row["pattern"], kernel, re.IGNORECASE)), {})


def op_of(name: str) -> Row:
    """Return the first op row that matches an op name, or an empty row."""
    return next((row for row in OPS if re.fullmatch(row["pattern"], name)), {})


def module_of(class_name: str) -> Row:
    """Return the first module row that matches a class name, or an empty row."""
    return next((row for row in MODULES if re.search(row["pattern"], class_name)), {})


def short(row: Row) -> str:
    """Return a readable test id for one row."""
    return f"{row.get('name') or row.get('place') or row['action']}-{row['example'][:40]}"


@pytest.mark.parametrize("row", FAMILIES, ids=short)
def test_a_family_row_is_the_first_that_matches_its_example(row: Row) -> None:
    assert family_of(row["example"]) == row


@pytest.mark.parametrize("row", OPS, ids=short)
def test_an_op_row_is_the_first_that_matches_its_example(row: Row) -> None:
    assert op_of(row["example"]) == row


@pytest.mark.parametrize("row", MODULES, ids=short)
def test_a_module_row_is_the_first_that_matches_its_example(row: Row) -> None:
    assert module_of(row["example"]) == row


def test_rows_use_only_the_agreed_words() -> None:
    assert {row["action"] for row in FAMILIES} == ACTIONS
    assert {row["action"] for row in OPS} <= ACTIONS | {"bmm", "none"}
    assert {row["place"] for row in OPS if "place" in row} <= OP_PLACES
    assert {row["place"] for row in MODULES} == MODULE_PLACES


def test_rows_have_the_agreed_keys() -> None:
    assert {frozenset(row) for row in FAMILIES} == {frozenset({"name", "pattern", "action", "example", "source"})}
    op = frozenset({"pattern", "action", "example", "source"})
    assert {frozenset(row) for row in OPS} == {op, op | {"place"}}
    assert {frozenset(row) for row in MODULES} == {frozenset({"pattern", "place", "example", "source"})}


def test_a_family_has_one_action() -> None:
    actions: dict[str, set[str]] = {}
    for row in FAMILIES:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", row["name"])
        actions.setdefault(row["name"], set()).add(row["action"])
    assert {name: found for name, found in actions.items() if len(found) > 1} == {}


def test_a_source_names_a_public_origin() -> None:
    for row in FAMILIES + OPS + MODULES:
        assert re.match(r"[\w.-]+(/[\w.-]+)? \w", row["source"]), row


ATEN = "void at::native::vectorized_elementwise_kernel<4, at::native::"


@pytest.mark.parametrize(
    ("kernel", "family", "action"),
    [
        # Ops quoted by a pointwise kernel decide nothing; a template is what it instantiates.
        (
            "triton_per_fused__flash_attn_backward__unsafe_view_mul_sum_view_8",
            "inductor_reduction",
            "fused",
        ),
        ("triton_poi_fused_constant_pad_nd_moe_forward_0", "inductor_pointwise", "fused"),
        ("triton_tem_fused_flex_attention_0", "inductor_flex_attention", "attention"),
        ("triton_tem_fused_addmm_native_layer_norm_view_1", "inductor_gemm", "gemm"),
        ("triton_tem_fused_zeros_1", "inductor_pointwise", "fused"),
        # A relu's backward that quotes the loss for a constant.
        (
            "triton_poi_fused_mul_nll_loss_forward_pow_relu_threshold_backward_view_6",
            "inductor_activation",
            "activation",
        ),
        # The functor inside ATen's templates.
        (f"{ATEN}CUDAFunctor_add<float>, at::detail::Array<char*, 3> >", "aten_elementwise", "elementwise"),
        (f"{ATEN}FillFunctor<float>, at::detail::Array<char*, 1> >", "aten_fill", "fill"),
        (f"{ATEN}bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)", "aten_copy", "copy"),
        (f"{ATEN}(anonymous namespace)::masked_fill_kernel(at::TensorIterator&)", "aten_mask", "mask"),
        (
            "void at::native::triu_tril_kernel<float, int, false, 1, true>(at::cuda::detail::TensorInfo<float>)",
            "aten_mask",
            "mask",
        ),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float> > >",
            "aten_reduce",
            "reduce",
        ),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float> > >",
            "aten_sampling",
            "sampling",
        ),
        (
            "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>",
            "aten_softmax",
            "softmax",
        ),
        (
            "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 9, true, false>",
            "aten_log_softmax",
            "loss",
        ),
        # Convolutions that are made of matrix products.
        ("void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1>", "cudnn_conv", "conv"),
        (
            "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_execute_kernel_cudnn",
            "cudnn_conv",
            "conv",
        ),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_cublas", "cublas_gemm", "gemm"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26", "cudnn_sdpa", "attention"),
        # Experts, tokens and quantisation beside attention and products.
        ("_fwd_kernel", "triton_attention", "attention"),
        ("_fwd_kernel_ep_scatter_2", "fused_moe", "moe"),
        # Products over routed tokens, apart from the routing around them.
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu", "triton_kernels_moe_gemm", "moe"),
        ("_combined_routing_compute", "triton_kernels_moe", "moe"),
        ("void marlin_moe_wna16::Marlin<__nv_bfloat16, 1, 256, 1, 8, 8, true, 4, 8, false>", "fused_moe_gemm", "moe"),
        ("void vllm::moe::topkGatingSoftmax<8, 128, 4, 16, int>(float const*)", "fused_moe", "moe"),
        ("_gemma_rmsnorm_kernel", "norm", "norm"),
        ("sparse_mla_prefill_kernel", "attention", "attention"),
        ("fused_qk_norm_rope_kernel", "rope", "rope"),
        # Two libraries, one prefix.
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "rccl", "comm"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "nccl", "comm"),
        ("_ZN5aiter32fmha_fwd_hd192_hd128_bf16_causalE", "aiter_attention", "attention"),
    ],
)
def test_a_kernel_name_that_misleads_is_read_right(kernel: str, family: str, action: str) -> None:
    row = family_of(kernel)
    assert (row.get("name"), row.get("action")) == (family, action)


@pytest.mark.parametrize("kernel", ["Kernel", "vector_add", "renormalize_gradients", "prepare_inputs"])
def test_a_kernel_name_that_says_nothing_has_no_family(kernel: str) -> None:
    assert family_of(kernel) == {}


@pytest.mark.parametrize(
    ("name", "action", "place"),
    [
        ("aten::_scaled_dot_product_attention_math", "none", "attention"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention", "attention"),
        ("aten::_cudnn_attention_backward", "attention", "attention"),
        ("FlashAttnFuncBackward", "attention", "attention"),
        (
            "autograd::engine::evaluate_function: ScaledDotProductEfficientAttentionBackward0",
            "none",
            "attention",
        ),
        ("autograd::engine::evaluate_function: AddmmBackward0", "none", None),
        ("aten::linear", "gemm", None),
        ("aten::matmul", "none", None),
        ("aten::baddbmm", "bmm", None),
        ("aten::_softmax", "softmax", None),
        ("aten::contiguous", "copy", None),
        ("aten::index_copy_", "index", None),
        ("aten::mkldnn_convolution", "conv", "conv"),
        ("aten::resolve_conj", "none", None),
        ("aten::_foreach_copy_", "copy", None),
        ("aten::_fused_adamw_", "optimizer", "optimizer"),
        ("Optimizer.zero_grad#AdamW.zero_grad", "none", "optimizer"),
        ("_c10d_functional::all_gather_into_tensor", "comm", "comm"),
        ("aten::cosine_embedding_loss", "loss", "loss"),
        ("vllm::unified_kv_cache_update", "kv_cache", "attention"),
        ("sglang_profiler::rmsnorm_rmsnorm2d_fwd_12", "norm", "norm"),
        ("quantized::conv2d_relu", "conv", "conv"),
    ],
)
def test_an_op_says_what_it_does_and_where(name: str, action: str, place: str | None) -> None:
    row = op_of(name)
    assert (row.get("action"), row.get("place")) == (action, place)


@pytest.mark.parametrize("name", ["ProfilerStep", "my_model.forward", "aten::no_such_op"])
def test_an_op_nobody_knows_has_no_row(name: str) -> None:
    assert op_of(name) == {} or op_of(name)["action"] == "none"


@pytest.mark.parametrize(
    ("place", "class_names"),
    [
        (
            "attention",
            "LlamaAttention LlamaSdpaAttention LlamaFlashAttention2 CausalSelfAttention MultiheadAttention "
            "BertSelfOutput ViTSelfAttention DeepseekV2AttentionMLA DeepseekV3Attention Qwen3MoeAttention "
            "RoPEAttention WindowAttention DotProductAttention MLAAttention RadixAttention EsmSelfAttention",
        ),
        (
            "block",
            "LlamaDecoderLayer BertLayer ResidualAttentionBlock AttentionBlock TwoWayAttentionBlock "
            "TransformerSelfAttentionLayer Qwen3MoeDecoderLayer Block SwinTransformerBlock T5LayerCrossAttention "
            "CrossAttnDownBlock2D ParallelTransformerLayer WhisperEncoderLayer EsmLayer FluxSingleTransformerBlock",
        ),
        ("mlp", "LlamaMLP Mlp FeedForward BertOutput EsmIntermediate MLPBlock GPT2MLP ParallelMLP"),
        (
            "moe",
            "MixtralSparseMoeBlock Qwen3MoeSparseMoeBlock DeepseekV3MoE GptOssExperts DeepseekV3TopkRouter "
            "MixtralBlockSparseTop2MLP SharedFusedMoE MoEGate TEGroupedMLP Llama4TextMoe",
        ),
        ("norm", "RMSNorm LlamaRMSNorm Qwen3MoeRMSNorm LayerNorm2d AdaLayerNormZero T5LayerNorm BatchNormAct2d"),
        ("embedding", "Embedding VocabParallelEmbedding BertEmbeddings PatchEmbed TimestepEmbedding Timesteps"),
        ("rope", "LlamaRotaryEmbedding RotaryEmbedding RotaryPositionalEmbeddings Qwen2VLVisionRotaryEmbedding"),
        ("lm_head", "ParallelLMHead LogitsProcessor BertOnlyMLMHead EsmLMHead"),
        ("linear", "Linear Conv1D QKVParallelLinear RowParallelLinear LoRALinear NonDynamicallyQuantizableLinear"),
        ("conv", "Conv1d Conv2d ConvTranspose2d Upsample2D"),
        ("activation", "GELU SiluAndMul NewGELUActivation ReLU SiLU"),
        ("sampling", "Sampler RejectionSampler"),
        (
            "container",
            "LlamaModel LlamaForCausalLM GPT2LMHeadModel BertEncoder T5Stack Sequential DistributedDataParallel "
            "ConvNextModel CLIPTextModelWithProjection ImageEncoderViT",
        ),
    ],
)
def test_a_class_stands_where_its_family_does(place: str, class_names: str) -> None:
    found = {name: module_of(name).get("place") for name in class_names.split()}
    assert found == dict.fromkeys(class_names.split(), place)


@pytest.mark.parametrize("class_name", ["PerceiverResampler", "MambaMixer", "VectorQuantizer"])
def test_a_class_that_is_none_of_these_has_no_place(class_name: str) -> None:
    assert module_of(class_name) == {}
