"""A graph of ops as text that draws itself: Mermaid for pages and pull requests, DOT for Graphviz.

Owns escaping, what a node says, and the colours. Names come from files that others wrote: none ends its string.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from tracekit.render.escape import visible
from tracekit.units import BYTES, NANOSECONDS, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tracekit.analyses.graph import Graph, Node

GRAPH_FORMATS = ("mermaid", "dot", "svg")
_COLOURS = {
    "attention.core": "#fde2c4", "attention.scores": "#fde2c4", "attention.softmax": "#fde2c4",
    "attention.values": "#fde2c4", "attention": "#fff3d6", "mlp": "#dcebdd", "moe": "#dcebdd", "norm": "#e3e4f5",
}  # fmt: skip
_PLAIN = "#f2f2f2"
_LONGEST = 56


def mermaid(graph: Graph) -> str:
    """Return the graph as a Mermaid flowchart."""
    lines = [f"%% {_one_line(_title(graph))}", "flowchart TD"]
    lines += _tree(graph.nodes, (), "  ", _mermaid_node, lambda at, name: f'subgraph m{at}["{_entities(name)}"]', "end")
    lines += [f"  n{at} --> n{at + 1}" for at in range(len(graph.nodes) - 1)]
    for colour in sorted({_colour(node.role) for node in graph.nodes}):
        named = f"c{colour[1:]}"
        members = ",".join(f"n{at}" for at, node in enumerate(graph.nodes) if _colour(node.role) == colour)
        lines += [f"  classDef {named} fill:{colour},stroke:#777,color:#111", f"  class {members} {named}"]
    return "\n".join(lines) + "\n"


def dot(graph: Graph) -> str:
    """Return the graph in Graphviz's language."""
    lines = [
        "digraph tracekit {",
        f'  graph [label="{_quoted(_title(graph))}", labelloc=t, fontname="Helvetica", fontsize=11];',
        '  node [shape=box, style="filled,rounded", fontname="Helvetica", fontsize=10, color="#777777"];',
        '  edge [color="#777777", arrowsize=0.6];',
    ]
    lines += _tree(
        graph.nodes, (), "  ", _dot_node, lambda at, name: f'subgraph cluster_{at} {{ label="{_quoted(name)}";', "}"
    )
    lines += [f"  n{at} -> n{at + 1};" for at in range(len(graph.nodes) - 1)]
    return "\n".join([*lines, "}"]) + "\n"


def _title(graph: Graph) -> str:
    work = sum(node.dur_ns for node in graph.nodes)
    of = f", call {graph.call + 1} of {graph.calls}" if graph.calls > 1 else ""
    where = "on the device" if graph.has_device else "in its ops"
    return (
        f"{graph.root}{of}: {text(graph.dur_ns, NANOSECONDS)} on the host, {text(work, NANOSECONDS)} {where}; "
        "arrows are the order of ops"
    )


def _tree(
    nodes: Sequence[Node],
    around: tuple[str, ...],
    indent: str,
    draw: Callable[[int, Node], str],
    begin: Callable[[str, str], str],
    end: str,
) -> Iterator[str]:
    """Yield the lines of all nodes right inside `around`, and of the groups that further modules make."""
    depth = len(around)
    inside: dict[str, None] = {}
    for at, node in enumerate(nodes):
        if node.modules == around:
            yield f"{indent}{draw(at, node)}"
        elif node.modules[:depth] == around and len(node.modules) > depth:
            inside[node.modules[depth]] = None
    for name in inside:
        path = (*around, name)
        yield f"{indent}{begin('_'.join(str(_number(nodes, path[: place + 1])) for place in range(len(path))), name)}"
        yield from _tree(nodes, path, f"{indent}  ", draw, begin, end)
        yield f"{indent}{end}"


def _number(nodes: Sequence[Node], path: tuple[str, ...]) -> int:
    return next(at for at, node in enumerate(nodes) if node.modules[: len(path)] == path)


def _said(node: Node) -> list[str]:
    """Return what a node says, a line each."""
    lines = [node.name if node.name == node.outermost else f"{node.name} (in {node.outermost})"]
    if node.shapes:
        lines.append(" · ".join("×".join(map(str, shape)) for shape in node.shapes[:4]) + _more(len(node.shapes), 4))
    lines += [f"{', '.join(node.types)}"] if node.types else []
    lines.append(f"{node.role} · {text(node.dur_ns, NANOSECONDS)}")
    for kernel in node.kernels[:3]:
        times = f" ×{kernel.calls}" if kernel.calls > 1 else ""
        lines.append(f"{_short(kernel.name)}{times} · {text(kernel.dur_ns, NANOSECONDS)}")
    if len(node.kernels) > 3:
        lines.append(f"and {len(node.kernels) - 3} more kernels")
    memory = [f"+{text(node.allocated_bytes, BYTES)}"] if node.allocated_bytes else []
    memory += [f"−{text(node.freed_bytes, BYTES)}"] if node.freed_bytes else []
    return [*lines, " ".join(memory)] if memory else lines


def _more(count: int, shown: int) -> str:
    return f" and {count - shown} more" if count > shown else ""


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _mermaid_node(at: int, node: Node) -> str:
    first, *rest = (_entities(line) for line in _said(node))
    return f'n{at}["<b>{first}</b>' + "".join(f"<br/>{line}" for line in rest) + '"]'


def _dot_node(at: int, node: Node) -> str:
    label = "\\n".join(_quoted(line) for line in _said(node))
    return f'n{at} [label="{label}", fillcolor="{_colour(node.role)}"];'


def _colour(role: str) -> str:
    return _COLOURS.get(role) or _COLOURS.get(role.split(".")[0]) or _PLAIN


def _one_line(words: str) -> str:
    return visible(words).replace("\n", " ")


def _entities(words: str) -> str:
    """Return words as Mermaid shows them, in which `#` begins an entity and quotes end a string."""
    escaped = html.escape(_one_line(words).replace("#", "&num;"), quote=True)
    return escaped.replace("&amp;num;", "#35;").replace("&#x27;", "#39;").replace("&", "#").replace("`", "#96;")


def _quoted(words: str) -> str:
    """Return words inside a string of DOT."""
    return _one_line(words).replace("\\", "\\\\").replace('"', '\\"')
