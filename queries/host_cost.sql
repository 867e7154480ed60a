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
    one_launch as (
        select op_id, max(dur_ns) as dur_ns
        from launch
        where op_id is not null
        group by op_id, trace_id, correlation
    ),
    given as (
        select op_id, dur_ns as launch_ns, 1 as launches, null::bigint as device_ns
        from one_launch
        union all by name
        select op_id, dur_ns as device_ns
        from kernel
    ),
    given_by_op as (
        select
            op_id,
            sum(launch_ns)::bigint as launch_ns,
            sum(launches) as launches,
            sum(device_ns)::bigint as device_ns
        from given
        group by op_id
    ),
    step_mark as (select distinct trace_id, name, 'annotation' as kind from step),
    called as (
        select
            case
                when o.kind = 'annotation'
                then regexp_replace(o.name, '[#=]\d+', '', 'g')
                else o.name
            end as op,
            o.kind,
            m.class_name as module_class,
            case when o.op_id is null then 0 else 1 end as calls,
            coalesce(o.self_ns, 0) as self_ns,
            case when o.op_id is null then 0 else g.launch_ns end as launch_ns,
            case when o.op_id is null then 0 else g.launches end as launches,
            g.device_ns
        from op as o
        full join given_by_op as g on g.op_id = o.op_id
        left join module as m on m.module_id = o.module_id
        left join step_mark as s on s.trace_id = o.trace_id and s.name = o.name and s.kind = o.kind
        where s.name is null and (o.op_id is not null or g.device_ns is not null)
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
