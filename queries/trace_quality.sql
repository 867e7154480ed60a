-- /// query
-- summary = "Was the trace read whole, and is it fit to judge by?"
-- requires = ["trace.trace_id"]
--
-- [columns]
-- rank = "Rank of the trace; null where it does not say."
-- check = "What was looked at."
-- severity = "ok, info, warn or bad."
-- count = "Events, pieces of work or rows it is about; 1 where it is about the whole trace."
-- share_frac = "Share of device time or of rows, as the message says; null where it has none."
-- message = "What it means."
-- ///
with
    kernels as (
        select
            k.trace_id,
            count(*) as pieces,
            sum(k.dur_ns) as total_ns,
            sum(k.dur_ns) filter (where k.op_id is not null) as linked_ns,
            count(*) filter (where k.op_id is not null) as linked,
            count(*) filter (where l.launch_id is not null and k.start_ns < l.start_ns) as early,
            count(l.launch_id) as launched
        from kernel_of_any_step as k
        left join launch as l on l.launch_id = k.launch_id
        group by k.trace_id
    ),
    rows as (
        select
            trace_id,
            1 as place,
            'events' as check_name,
            'ok' as severity,
            events as count,
            null::double as share_frac,
            'Events read from ' || source_name || ', dialect ' || dialect || '.' as message
        from trace
        union all by name
        select
            trace_id,
            2 as place,
            'linked_device_time' as check_name,
            case
                when linked_ns >= 0.95 * total_ns
                then 'ok'
                when linked_ns >= 0.5 * total_ns
                then 'warn'
                else 'bad'
            end as severity,
            linked as count,
            coalesce(linked_ns, 0) / nullif(total_ns, 0) as share_frac,
            'Device work with an op, and its share of device time.' as message
        from kernels
        union all by name
        select
            trace_id,
            3 as place,
            'starts_before_launch' as check_name,
            'warn' as severity,
            early as count,
            early / nullif(launched, 0) as share_frac,
            'Device work that starts before its own launch: clocks disagree; share of linked work.'
            as message
        from kernels
        where early > 0
        union all by name
        select
            trace_id,
            4 as place,
            'no_device' as check_name,
            'info' as severity,
            1 as count,
            null::double as share_frac,
            'No device work was recorded: questions count the self time of CPU ops.' as message
        from trace
        where not has_device
        union all by name
        select
            trace_id,
            5 as place,
            'not_recorded' as check_name,
            'info' as severity,
            1 as count,
            null::double as share_frac,
            'Not recorded: ' || concat_ws(
                ', ',
                case when not has_shapes then 'shapes (record_shapes)' end,
                case when not has_stacks then 'stacks and nn.Modules (with_stack)' end,
                case when has_stacks and not has_modules then 'nn.Modules' end,
                case when not has_memory then 'memory (profile_memory)' end
            )
            || '.' as message
        from trace
        where not (has_shapes and has_stacks and has_modules and has_memory)
        union all by name
        select
            trace_id,
            6 as place,
            'cold_step' as check_name,
            'warn' as severity,
            count(*) as count,
            null::double as share_frac,
            'The first step took much longer than the others: warm-up was still going on.'
            as message
        from step
        where is_cold
        group by trace_id
        union all by name
        select trace_id, 7 as place, check_name, severity, count, share_frac, message
        from quality
    )
select t.rank, r.check_name as check, r.severity, r.count, r.share_frac, r.message
from rows as r
join trace as t using (trace_id)
order by t.rank nulls first, r.trace_id, r.place, r.check_name, r.message
