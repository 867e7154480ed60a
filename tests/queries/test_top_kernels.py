"""Which kernels take the time, one row a name."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from tests.build import annotation, ask, csv, frame, kernel, launch, notes, only, op, step, work

FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64>>(Flash_fwd_params)"


def test_each_name_is_one_row_and_the_shares_add_up_to_one() -> None:
    table = ask(
        "top_kernels",
        work("mul", 10, 10, 1, op_name="aten::mul"),
        work("gemm", 30, 20, 2, op_name="aten::mm"),
        work("gemm", 60, 40, 3, op_name="aten::addmm"),
        work("add", 110, 30, 4, op_name="aten::add"),
    )
    columns = ("kernel", "calls", "total_ns", "share_frac", "cumulative_frac", "mean_ns", "p50_ns", "p99_ns", "max_ns")
    assert csv(table, *columns) == snapshot("""\
kernel,calls,total_ns,share_frac,cumulative_frac,mean_ns,p50_ns,p99_ns,max_ns
gemm,2,60000,0.6,0.6,30000.0,20000,40000,40000
add,1,30000,0.3,0.9,30000.0,30000,30000,30000
mul,1,10000,0.1,1.0,10000.0,10000,10000,10000
""")


def test_top_cuts_the_rows_and_keeps_the_shares() -> None:
    events = [work(f"k{length}", 100 * length, length, length, op_name="aten::mm") for length in (10, 20, 30, 40)]
    table = ask("top_kernels", *events, top=2)
    assert csv(table, "kernel", "share_frac", "cumulative_frac") == snapshot("""\
kernel,share_frac,cumulative_frac
k40,0.4,0.4
k30,0.3,0.7
""")
    assert ask("top_kernels", *events, top=0).frame.height == 4


def test_names_of_equal_time_stand_in_a_fixed_order() -> None:
    events = [work(name, at, 10, at, op_name="aten::mm") for at, name in ((10, "c"), (40, "b"), (70, "a"))]
    table = ask("top_kernels", *events)
    assert table.frame["kernel"].to_list() == ["a", "b", "c"]
    assert table.frame["cumulative_frac"].to_list() == pytest.approx([1 / 3, 2 / 3, 1])


def test_the_role_is_that_of_most_of_its_time() -> None:
    table = ask(
        "top_kernels",
        frame("nn.Module: LlamaMLP_0", 0, 100, 1),
        work("gemm", 20, 10, 1, op_name="aten::mm"),
        work("gemm", 50, 10, 2, op_name="aten::mm"),
        work("gemm", 220, 30, 3, op_name="aten::mm"),
    )
    assert csv(table, "kernel", "role", "calls", "total_ns") == snapshot("""\
kernel,role,calls,total_ns
gemm,other,3,50000
""")


def test_a_known_name_has_its_family() -> None:
    table = ask("top_kernels", work(FLASH, 20, 10, 1, op_name="aten::_scaled_dot_product_flash_attention"))
    assert table.frame["role"].item() == "attention.core"
    assert "flash" in table.frame["family"].item()
    assert ask("top_kernels", work("mystery", 20, 10, 1, op_name="aten::mm")).frame["family"].item() is None


def test_streams_and_devices_of_one_name_add_up() -> None:
    table = ask(
        "top_kernels",
        op("aten::mm", 0, 10),
        launch(1, 1),
        kernel("gemm", 20, 10, 1, stream=7),
        launch(3, 2),
        kernel("gemm", 20, 10, 2, stream=8),
        launch(5, 3),
        kernel("gemm", 20, 10, 3, device=1),
    )
    assert csv(table, "kernel", "calls", "total_ns", "share_frac") == snapshot("""\
kernel,calls,total_ns,share_frac
gemm,3,30000,1.0
""")


def test_copies_count_as_work() -> None:
    copy = kernel("Memcpy DtoD (Device -> Device)", 20, 10, 1, bytes=64) | {"cat": "gpu_memcpy"}
    table = ask("top_kernels", op("aten::copy_", 0, 10), launch(1, 1, name="cudaMemcpyAsync"), copy)
    assert csv(table, "kernel", "total_ns") == snapshot("""\
kernel,total_ns
Memcpy DtoD (Device -> Device),10000
""")


def test_selected_steps_alone_are_counted() -> None:
    events = [
        step(1, 0, 100),
        *work("first", 20, 30, 1, op_name="aten::mm"),
        step(2, 100, 100),
        *work("second", 120, 50, 2, op_name="aten::mm"),
    ]
    table = ask("top_kernels", *events, selection=only(steps=[2]))
    assert csv(table, "kernel", "total_ns", "cumulative_frac") == snapshot("""\
kernel,total_ns,cumulative_frac
second,50000,1.0
""")


def test_without_a_device_ops_take_the_place_of_kernels() -> None:
    table = ask(
        "top_kernels",
        annotation("my block", 0, 200),
        op("aten::linear", 0, 100),
        op("aten::addmm", 20, 60),
        op("aten::addmm", 120, 30),
    )
    assert csv(table, "kernel", "family", "calls", "total_ns", "share_frac", "cumulative_frac") == snapshot("""\
kernel,family,calls,total_ns,share_frac,cumulative_frac
aten::addmm,-,2,90000,0.6923076923076923,0.6923076923076923
aten::linear,-,1,40000,0.3076923076923077,1.0
""")
    assert notes(table) == snapshot("info: No device was recorded: work is the self time of CPU ops.\n")
