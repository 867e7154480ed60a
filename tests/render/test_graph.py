"""A call of a module as a graph in text: what is in it, and that no name breaks out of its string."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from tests import independent
from tests.build import frame, kernel, launch, memory, op, run, trace_file
from tracekit.analyses.graph import Graph, Kernel, Node
from tracekit.errors import TracekitError
from tracekit.render.graph import dot, mermaid

if TYPE_CHECKING:
    from pathlib import Path

    from tests.build import Event

ATTENTION = "nn.Module: LlamaAttention_0"
EVENTS = [
    frame("nn.Module: Llama_0", 0, 100, 1),
    frame(ATTENTION, 5, 60, 2, 1),
    frame("nn.Module: Linear_0", 10, 10, 3, 2),
    op("aten::linear", 11, 8, Input_Dims=[[2, 8], [4, 8]], Input_type=["c10::BFloat16", "c10::BFloat16"]),
    op("aten::mm", 12, 6, Input_Dims=[[2, 8], [8, 4]], Input_type=["c10::BFloat16", "c10::BFloat16"]),
    memory(13, 64, 1024, 1024),
    launch(14, 1),
    kernel("sgemm", 200, 5, 1),
    op("aten::view", 30, 1),
    op("aten::_flash_attention_forward", 40, 9, Input_Dims=[[1, 2, 1, 4]]),
    launch(41, 2),
    kernel("flash_fwd_kernel<true>", 210, 7, 2),
    launch(43, 3),
    kernel("flash_fwd_kernel<true>", 220, 7, 3),
    memory(45, 64, -1024, 0),
    op("aten::add", 90, 2),
    launch(91, 4),
    kernel("add", 240, 1, 4),
]


def test_a_module_s_call_is_drawn_in_order_with_what_each_op_ran_and_made() -> None:
    with run(*EVENTS) as opened:
        graph = opened.graph()
    assert mermaid(graph) == snapshot("""\
%% Llama_0/LlamaAttention_0: 60.0 µs on the host, 19.0 µs on the device; arrows are the order of ops
flowchart TD
  n1["<b>aten::_flash_attention_forward</b><br/>1×2×1×4<br/>attention.core · 14.0 µs<br/>flash_fwd_kernel#lt;true#gt; ×2 · 14.0 µs<br/>−1.00 KiB"]
  subgraph m0["Linear_0"]
    n0["<b>aten::mm (in aten::linear)</b><br/>2×8 · 8×4<br/>bfloat16<br/>attention.qkv_proj · 5.00 µs<br/>sgemm · 5.00 µs<br/>+1.00 KiB"]
  end
  n0 --> n1
  classDef cfde2c4 fill:#fde2c4,stroke:#777,color:#111
  class n1 cfde2c4
  classDef cfff3d6 fill:#fff3d6,stroke:#777,color:#111
  class n0 cfff3d6
""")
    assert dot(graph) == snapshot("""\
digraph tracekit {
  graph [label="Llama_0/LlamaAttention_0: 60.0 µs on the host, 19.0 µs on the device; arrows are the order of ops", labelloc=t, fontname="Helvetica", fontsize=11];
  node [shape=box, style="filled,rounded", fontname="Helvetica", fontsize=10, color="#777777"];
  edge [color="#777777", arrowsize=0.6];
  n1 [label="aten::_flash_attention_forward\\n1×2×1×4\\nattention.core · 14.0 µs\\nflash_fwd_kernel<true> ×2 · 14.0 µs\\n−1.00 KiB", fillcolor="#fde2c4"];
  subgraph cluster_0 { label="Linear_0";
    n0 [label="aten::mm (in aten::linear)\\n2×8 · 8×4\\nbfloat16\\nattention.qkv_proj · 5.00 µs\\nsgemm · 5.00 µs\\n+1.00 KiB", fillcolor="#fff3d6"];
  }
  n0 -> n1;
}
""")


def _later(event: Event) -> Event:
    ids = {key: number + 10 for key, number in event["args"].items() if key.startswith("Python") and number}
    return event | {"ts": event["ts"] + 1000, "args": event["args"] | ids}


def test_a_module_can_be_named_and_its_calls_counted() -> None:
    again = [_later(event) for event in EVENTS[:5]]
    with run(*EVENTS, *again) as opened:
        graph = opened.graph("Llama_0/LlamaAttention_0/Linear_0")
        assert (graph.call, graph.calls, [node.name for node in graph.nodes]) == (0, 2, ["aten::mm"])
        op_id = opened.sql("select op_id from op where name = 'aten::linear' order by 1").frame["op_id"][0]
        assert [node.name for node in opened.graph(op=op_id).nodes] == ["aten::mm"]
        with pytest.raises(TracekitError, match="has 2 calls: choose --nth from 0 to 1"):
            opened.graph("Llama_0/LlamaAttention_0/Linear_0", nth=2)
        with pytest.raises(TracekitError, match="launched no device work in this call"):
            opened.graph("Llama_0/LlamaAttention_0/Linear_0", nth=1)
        with pytest.raises(
            TracekitError, match="no calls of a module 'Linear_0': such as Llama_0/LlamaAttention_0/Lin"
        ):
            opened.graph("Linear_0")
        with pytest.raises(TracekitError, match="the run has no op 99"):
            opened.graph(op=99)


def test_without_a_device_the_outermost_ops_are_drawn_with_their_cpu_time() -> None:
    with run(*(event for event in EVENTS if event["cat"] not in {"kernel", "cuda_runtime"})) as opened:
        nodes = opened.graph().nodes
    assert [(node.name, node.dur_ns) for node in nodes] == [
        ("aten::linear", 8000), ("aten::view", 1000), ("aten::_flash_attention_forward", 9000)
    ]  # fmt: skip


def test_without_a_device_an_op_has_the_role_of_the_work_in_it() -> None:
    attention = [
        op("aten::scaled_dot_product_attention", 20, 30),
        op("aten::_scaled_dot_product_flash_attention_for_cpu", 35, 10),
        op("aten::contiguous", 52, 8),
        op("aten::clone", 53, 5),
    ]
    with run(frame(ATTENTION, 5, 60, 2), *attention) as opened:
        roles = {node.name: node.role for node in opened.graph().nodes}
    assert roles == {"aten::scaled_dot_product_attention": "attention.core", "aten::contiguous": "attention.layout"}


def test_a_run_without_modules_says_what_to_record() -> None:
    with run(op("aten::mm", 0, 1)) as opened, pytest.raises(TracekitError, match="knows no attention module: name one"):
        opened.graph()


NAMES = st.text(max_size=12) | st.sampled_from(
    ['"]', "end", '"; x', "a\\", "\n", "<b>", "#quot;", "`x`", "%%", "A" * 90]
)


@given(st.lists(st.tuples(NAMES, NAMES, NAMES), min_size=1, max_size=4))
def test_no_name_ends_its_string_or_its_line(names: list[tuple[str, str, str]]) -> None:
    nodes = tuple(
        Node(name, (module,), name, ((2, 3),), (), "mlp", 1, (Kernel(kernel_name, 1, 1),), None, None)
        for name, module, kernel_name in names
    )
    graph = Graph("root", 0, 1, 5, has_device=True, nodes=nodes)
    for line in mermaid(graph).splitlines():
        if '["' in line:
            assert line.count('"') == 2
            assert line.endswith('"]')
    for line in dot(graph).splitlines():
        assert line.replace("\\\\", "").replace('\\"', "").count('"') % 2 == 0
    assert len(dot(graph).splitlines()) == 5 + len(nodes) + (len(nodes) - 1) + 2 * len(
        {module for _, module, _ in names}
    )


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_draws_it() -> None:
    with run(*EVENTS) as opened:
        source = dot(opened.graph())
    drawn = subprocess.run(["dot", "-Tsvg"], input=source.encode(), capture_output=True, check=True).stdout
    assert drawn.count(b'class="node"') == 2


def test_a_call_made_of_several_ops_is_drawn_from_the_first_to_the_last(traces: Path) -> None:
    with trace_file(traces / "h100-timesformer-math.json.gz") as opened:
        graph = opened.graph(call=0)
        (expected,) = opened.sql("select sum(dur_ns)::bigint from kernel where call_id = 0").frame.row(0)
    names = [node.name for node in graph.nodes]
    assert names.count("aten::bmm") == 2
    assert "aten::_softmax" in names
    assert sum(node.dur_ns for node in graph.nodes) == expected


def test_times_of_a_real_layer_are_those_of_the_work_launched_inside_it(traces: Path) -> None:
    path = traces / "h100-qwen1.5-0.5b.json.gz"
    raw = independent.read(path.read_bytes())
    works = independent.places_of_work(raw, independent.device_work(raw))
    expected = sum(work.duration for work, _, modules in works if "Qwen2Attention_3" in modules)
    with trace_file(path) as opened:
        module = opened.sql("select path from module where path like '%/Qwen2Attention_3'").frame.item()
        graph = opened.graph(module)
    assert graph.calls == 1
    assert sum(node.dur_ns for node in graph.nodes) == expected
