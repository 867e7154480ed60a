-- /// query
-- summary = "Which ops cost the host more time than they give the device work?"
-- requires = ["op.self_ns"]
--
-- [params]
-- top = { default = 30, doc = "Rows to return, 0 for all." }
--
-- [columns]
-- op = """Name of the op that was innermost; null for device work that no op launched. Of
-- annotations the running number is left out; those that mark a step are no rows."""
-- kind = """op, annotation, autograd, collective or region; time in an annotation is that in no
-- op inside it."""
-- module_class = "Class of the innermost nn.Module around it; null where none was recorded."
-- calls = "Times the op was called."
-- self_ns = """Host time in which it was innermost on its thread, waiting included; all rows sum
-- to the threads' time in ops, steps' own left out."""
-- share_frac = "self_ns over that of all rows."
-- launch_ns = "Host time in its launch calls, a part of self_ns."
-- launches = """Launches made with it as innermost op; a runtime call and the driver call inside
-- it are one."""
-- device_ns = """Duration of the device work that it launched; all rows sum to that of all device
-- work. Null where no device was recorded."""
-- device_to_host_frac = """device_ns over self_ns: below 1 the host takes longer to launch the
-- work than the device to do it, so that such ops alone would leave the device idle."""
--
-- [[notes]]
-- status = "warning"
-- text = """Recorded with stacks: host times hold what recording each Python call cost, so that
-- ops look more host-bound than they are."""
-- sql = "select 1 from trace where has_stacks limit 1"
--
-- [[notes]]
-- status = "info"
-- text = """{0:.1f} % of the steps' time on the host was in no op: Python, other libraries or
-- waiting."""
-- sql = '''
-- select 100.0 * sum(o.self_ns) / nullif(sum(o.dur_ns), 0) as share
-- from op as o
-- where o.kind = 'annotation' and (o.trace_id, o.name) in (select (trace_id, name) from step)
-- '''
--
-- [[notes]]
-- status = "info"
-- text = "{0} rows in all; -p top=0 shows every one."
-- column = "all_rows"
-- ///
with
    step_mark as (
        select o.op_id
        from op as o
        where o.kind = 'annotation' and (o.trace_id, o.name) in (select (trace_id, name) from step)
    ),
    one_launch as (
        select op_id, max(dur_ns) as dur_ns
        from launch
        where op_id is not null
        group by op_id, trace_id, correlation
    ),
    launched as (
        select op_id, count(*) as launches, sum(dur_ns)::bigint as launch_ns
        from one_launch
        group by op_id
    ),
    worked as (select op_id, sum(dur_ns)::bigint as device_ns from kernel group by op_id),
    called as (
        select
            case
                when o.kind = 'annotation'
                then regexp_replace(o.name, '[#=]\d+', '', 'g')
                else o.name
            end as op,
            o.kind,
            m.class_name as module_class,
            1 as calls,
            o.self_ns,
            l.launch_ns,
            l.launches,
            w.device_ns
        from op as o
        left join module as m on m.module_id = o.module_id
        left join launched as l on l.op_id = o.op_id
        left join worked as w on w.op_id = o.op_id
        where o.op_id not in (select op_id from step_mark)
        union all by name
        select
            null::varchar as op,
            null::varchar as kind,
            null::varchar as module_class,
            0 as calls,
            0 as self_ns,
            0 as launch_ns,
            0 as launches,
            device_ns
        from worked
        where op_id is null or op_id not in (select op_id from op)
    ),
    costs as (
        select
            op,
            kind,
            module_class,
            sum(calls)::bigint as calls,
            sum(self_ns)::bigint as self_ns,
            coalesce(sum(launch_ns), 0)::bigint as launch_ns,
            coalesce(sum(launches), 0)::bigint as launches,
            case
                when (select bool_or(has_device) from trace)
                then coalesce(sum(device_ns), 0)::bigint
            end as device_ns
        from called
        group by op, kind, module_class
    )
select
    op,
    kind,
    module_class,
    calls,
    self_ns,
    self_ns / nullif(sum(self_ns) over (), 0) as share_frac,
    launch_ns,
    launches,
    device_ns,
    device_ns / nullif(self_ns, 0) as device_to_host_frac,
    case when $top > 0 and count(*) over () > $top then count(*) over () end as all_rows
from costs
order by
    self_ns desc, device_ns desc nulls last, op nulls last, kind nulls last, module_class nulls last
limit case when $top > 0 then $top else 9223372036854775807 end
