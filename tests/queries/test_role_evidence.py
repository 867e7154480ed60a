"""Every role says by what it was decided, with the longest piece of work as the example."""

from __future__ import annotations

from inline_snapshot import snapshot

from tests.build import ask, csv, notes, op, work

EVENTS = [
    work("ncclDevKernel_AllReduce", 100, 50, 1, op_name="c10d::allreduce_"),
    work("ampere_sgemm", 200, 10, 2, op_name="aten::mm"),
    work("layer_norm_kernel", 300, 30, 3, op_name="aten::native_layer_norm"),
    work("layer_norm_kernel_2", 400, 10, 4, op_name="aten::native_layer_norm"),
    op("aten::native_layer_norm", 500, 1, Input_Dims=[[2, 8]]),
]


def test_a_row_holds_what_one_reason_decided_with_its_longest_piece() -> None:
    table = ask("role_evidence", *EVENTS)
    assert csv(table, "role", "confidence", "reason", "calls", "total_ns", "share_frac", "op", "kernel") == snapshot("""\
role,confidence,reason,calls,total_ns,share_frac,op,kernel
comm,certain,kernel family nccl,1,50000,0.5,c10d::allreduce_,ncclDevKernel_AllReduce
norm,certain,op aten::native_layer_norm,2,40000,0.4,aten::native_layer_norm,layer_norm_kernel
other,inferred,op aten::mm,1,10000,0.1,aten::mm,ampere_sgemm
""")
    assert notes(table) == snapshot("warning: 10.0 % of the time shown has an inferred role: judge by the examples.\n")


def test_a_role_or_the_start_of_some_can_be_asked_for() -> None:
    assert ask("role_evidence", *EVENTS, role="norm").frame["calls"].to_list() == [2]
    assert ask("role_evidence", *EVENTS, role="no").frame["role"].to_list() == ["norm"]
    assert ask("role_evidence", *EVENTS, role="mlp").frame.is_empty()
    assert ask("role_evidence", *EVENTS, top=1).frame["role"].to_list() == ["comm"]
