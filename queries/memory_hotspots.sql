-- /// query
-- summary = "What fills the memory at its peak: by role, module and op?"
-- requires = ["allocation.bytes", "memory_sample.allocated_bytes"]
--
-- [params]
-- device = { default = "", doc = "Device, such as cuda:0; empty: the fullest one." }
-- top = { default = 30, doc = "Rows to return, 0 for all." }
--
-- [columns]
-- made = "When it was allocated: in the recording, or before it (or outside the selection)."
-- role = "Role of the op that allocated it."
-- module_class = "Class of the nn.Module that allocated it."
-- op = "Op that allocated it; null where none was running."
-- allocations = "Allocations that were live at the peak; null where they were not recorded."
-- live_bytes = "Their bytes, as the allocator rounded them."
-- share_frac = "live_bytes over all bytes allocated at the peak."
-- largest_bytes = "The largest of them."
-- phase = "Phase in which it was allocated."
-- device = "Device whose peak it is."
--
-- [[notes]]
-- status = "exact"
-- text = "{0} peaks at {1:,} bytes, {2:.3f} ms after the start, in {3}."
-- sql = '''
-- with
-- top_sample as (
-- select * from memory_sample
-- where allocated_bytes is not null and ($device = '' or device = $device)
-- order by allocated_bytes desc, sample_id
-- limit 1
-- ),
-- made as (
-- select a.op_id from allocation as a join top_sample as t on t.sample_id = a.start_sample_id
-- )
-- select
-- t.device,
-- t.allocated_bytes,
-- t.time_ns / 1e6,
-- coalesce((select any_value(name) from op where op_id in (select op_id from made)), 'no op')
-- from top_sample as t
-- '''
--
-- [[notes]]
-- status = "exact"
-- text = """{0:.1f} % of the peak was allocated before the recording, or outside the selection: who
-- allocated it is not in the trace."""
-- column = "before_percent"
-- ///
with
    top_sample as (
        select *
        from memory_sample
        where allocated_bytes is not null and ($device = '' or device = $device)
        order by allocated_bytes desc, sample_id
        limit 1
    ),
    live as materialized(
        select a.*
        from allocation as a
        join
            top_sample as t
            on a.trace_id = t.trace_id
            and a.device = t.device
            and a.start_sample_id <= t.sample_id
            and coalesce(a.end_sample_id, t.sample_id + 1) > t.sample_id
    ),
    making_op as (select op_id, name from op where op_id in (select op_id from live)),
    grouped as (
        select
            'in the recording' as made,
            l.phase,
            l.role,
            m.class_name as module_class,
            o.name as op,
            count(*) as allocations,
            sum(l.bytes)::bigint as live_bytes,
            max(l.bytes) as largest_bytes
        from live as l
        left join making_op as o on o.op_id = l.op_id
        left join module as m on m.module_id = l.module_id
        group by all
    ),
    complete as (
        select *
        from grouped
        union all by name
        select
            'before it' as made,
            t.allocated_bytes - coalesce((select sum(bytes) from live), 0)::bigint as live_bytes
        from top_sample as t
        where live_bytes <> 0
    ),
    earlier as (
        select
            100.0 * (
                1 - coalesce((select sum(bytes) from live), 0) / nullif(allocated_bytes, 0)
            ) as percent
        from top_sample
    )
select
    c.made,
    c.role,
    c.module_class,
    c.op,
    c.allocations,
    c.live_bytes,
    c.live_bytes / nullif(t.allocated_bytes, 0) as share_frac,
    c.largest_bytes,
    c.phase,
    t.device,
    (select percent from earlier where percent > 0.05) as before_percent
from complete as c
cross join top_sample as t
order by c.live_bytes desc, c.role, c.module_class, c.op, c.phase, c.made
limit case when $top > 0 then $top else 9223372036854775807 end
