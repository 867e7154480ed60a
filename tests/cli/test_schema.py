"""`tracekit schema`: the tables and columns that SQL can use."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from inline_snapshot import snapshot

from tracekit.store import schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Said


def test_every_table_and_column_is_listed_with_its_meaning(tracekit: Callable[..., Said]) -> None:
    said = tracekit("schema", "-f", "json")
    assert (said.code, said.err) == (0, "")
    rows = [tuple(row.values()) for row in json.loads(said.out)["rows"]]
    expected = []
    for relation in schema():
        expected.append((relation.name, None, "view" if relation.is_view else "table", relation.doc))
        expected += [(relation.name, column.name, column.type.lower(), column.doc) for column in relation.columns]
    assert rows == expected


def test_one_table_can_be_asked_for(tracekit: Callable[..., Said]) -> None:
    said = tracekit("schema", "memory_sample", "-f", "csv")
    assert said.out == snapshot("""\
table,column,type,meaning
memory_sample,sample_id,bigint,Id of the sample; samples are numbered in the order of the allocator's calls.
memory_sample,trace_id,bigint,Trace it belongs to.
memory_sample,device,varchar,"Device, such as cuda:0; cpu for host memory."
memory_sample,time_ns,bigint,Host time of the allocator call.
memory_sample,allocated_bytes,bigint,Bytes allocated after it; null where the exporter wrote no totals.
memory_sample,reserved_bytes,bigint,Bytes the caching allocator held after it; 0 on the CPU.
memory_sample,args_json,varchar,"Args without a column of their own, JSON."
""")


def test_an_unknown_table_is_a_fault_in_one_line(tracekit: Callable[..., Said]) -> None:
    fault = tracekit("schema", "kernels").fault
    assert fault.startswith("there is no table 'kernels': choose from trace, step, op, frame, module, launch, kernel, ")
    assert fault.endswith(
        "quality, device_spec, residency, product, device_wait, kernel_of_any_step, launch_of_any_step, other_event_of_any_step, device_wait_of_any_step, cpu_op, work, gemm_call, roof_call"
    )
