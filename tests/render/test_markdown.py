"""Markdown tables."""

import polars as pl
import pytest
from inline_snapshot import snapshot
from markdown_it import MarkdownIt

from tracekit.render.markdown import render_markdown
from tracekit.table import Note, Table


def test_no_rows_leave_the_header_and_say_so(empty: Table) -> None:
    assert render_markdown(empty).decode() == snapshot("""\
| kernel | total [ns] | launches | share [%] | ratio | stream id | dims | facts | is cold |
| --- | ---: | ---: | ---: | ---: | ---: | --- | --- | --- |

no rows

- exact: total_ns counts every kernel
""")


@pytest.mark.parametrize(
    "name",
    [
        "gemm<float, Traits<128>>(float*, float*)",
        "a|b",
        "a\\|b\\",
        "__init__ and _x_ but fused_add_norm",
        "`code` ~~gone~~ $x$ **bold**",
        "[link](http://example.org) ![image](x) [ref][x]",
        "&lt; &amp",
        "<script>alert(1)</script>",
    ],
)
def test_a_reader_of_markdown_sees_the_name_as_it_is(name: str) -> None:
    text = render_markdown(Table("t", pl.DataFrame({"name": [name]}), {"name": "It."}, (Note("info", name),)))
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text.decode())
    inline = [token.children for token in tokens if token.type == "inline"]
    assert [[child.type for child in children or []] for children in inline] == [["text"]] * 3
    assert [(children or [])[0].content for children in inline] == ["name", name, f"note: {name}"]
