-- /// query
-- summary = "What does the device wait for between pieces of work?"
-- requires = ["kernel.dur_ns"]
--
-- [params]
-- by_step = { default = false, doc = "Give each profiler step its own rows." }
--
-- [columns]
-- rank = "Rank of the trace; null where it does not say."
-- step = "Number of the profiler step; null unless given by step, or where none was marked."
-- device = "Device index."
-- cause = """What the device waited for, by the first rule that holds. no later work: nothing
-- follows. unknown: the work that follows has no launch in the trace, or starts before it. within
-- one launch: the work before has the same launch, a graph. If that launch call began after the
-- device went idle: waiting for a copy call or for a sync, if one of its thread was running at
-- that moment (copies between host and device count), else for a launch. If it began before:
-- waiting for ranks, if the work before or after is a collective; waiting for a copy, if the work
-- before is a copy to the device or on another stream, or the work after is a copy to the device;
-- else launch latency."""
-- is_inferred = """Whether it is inferred from what lies beside the gap; else the order of times
-- shows it."""
-- gaps = "Gaps; by step, one that a step's border cuts counts in each step."
-- idle_ns = """Time of the gaps inside the steps' windows; all causes add up to the idle_ns of
-- step_breakdown. With --phase, work of other phases is idle time."""
-- share_frac = "idle_ns over the windows of the steps."
-- longest_ns = "Longest gap, as far as it lies inside one window."
-- longest_start_ns = "When that began."
-- longest_op = "Op that launched the work after it; null where none did, or none follows."
-- longest_kernel = "The work after it; null where none follows."
--
-- [[notes]]
-- status = "info"
-- text = """A wait for a launch, a copy call or a sync is the host's: it launched too late. A
-- trace does not show which work waited for another stream, so launch latency may hide that."""
-- sql = "select 1"
--
-- [[notes]]
-- status = "info"
-- text = "No ProfilerStep marks: the whole trace is taken as one step."
-- sql = "select 1 from step where number is null limit 1"
-- ///
with
    piece as (
        select
            kernel_id,
            trace_id,
            device,
            stream,
            launch_id,
            start_ns,
            start_ns + dur_ns as end_ns,
            kind = 'memcpy' as is_copy,
            case
                when kind = 'memcpy' then regexp_matches(name, '(?i)htod|hosttodevice') else false
            end as is_upload,
            case
                when kind = 'memcpy' then regexp_matches(name, '(?i)htod|dtoh|hosttodev|devicetoho')
            end as is_with_host,
            coalesce(
                family in ('nccl', 'rccl', 'symmetric_memory', 'custom_all_reduce', 'deep_ep'),
                false
            )
            or kernel_id
            in (select kernel_id from collective where kernel_id is not null) as is_collective
        from kernel_of_any_step
    ),
    reached as materialized(
        select
            *,
            max(end_ns) over (in_order rows between unbounded preceding and 1 preceding) as free_ns,
            lag(end_ns) over in_order as end_before_ns,
            lag(launch_id) over in_order as launch_before_id,
            lag(stream) over in_order as stream_before,
            lag(is_copy) over in_order as is_after_copy,
            lag(is_upload) over in_order as is_after_upload,
            lag(is_collective) over in_order as is_after_collective
        from piece
        window in_order as (partition by trace_id, device order by start_ns, end_ns, kernel_id)
    ),
    -- What ended last before a gap, where that is not what began last: few, which the engine
    -- knows of one list.
    outlasting as (
        select unnest(list(late)) as late
        from
            (
                select
                    r.kernel_id,
                    arg_max(b, {'start_ns':b.start_ns, 'kernel_id':b.kernel_id}) as before
                from reached as r
                join
                    reached as b
                    on b.trace_id = r.trace_id
                    and b.device is not distinct from r.device
                    and b.end_ns = r.free_ns
                    and b.start_ns <= r.start_ns
                where r.end_before_ns < r.free_ns and r.free_ns < r.start_ns
                group by r.kernel_id
            ) as late
    ),
    gap as (
        select
            r.trace_id,
            r.device,
            r.free_ns as from_ns,
            r.start_ns as to_ns,
            r.kernel_id,
            r.launch_id,
            r.launch_id = case
                when o.late.before is null then r.launch_before_id else o.late.before.launch_id
            end as is_within_launch,
            r.is_collective
            or case
                when o.late.before is null
                then r.is_after_collective
                else o.late.before.is_collective
            end as is_beside_collective,
            r.is_upload
            or case
                when o.late.before is null
                then
                    r.is_after_upload
                    or (r.is_after_copy and r.stream_before is distinct from r.stream)
                else
                    o.late.before.is_upload
                    or (o.late.before.is_copy and o.late.before.stream is distinct from r.stream)
            end as is_beside_copy
        from reached as r
        left join outlasting as o on o.late.kernel_id = r.kernel_id
        where r.free_ns is null or r.free_ns < r.start_ns
        union all by name
        select trace_id, device, max(end_ns) as from_ns
        from reached
        group by trace_id, device
    ),
    judged as materialized(
        select
            g.trace_id,
            g.device,
            g.kernel_id,
            g.from_ns,
            g.launch_id,
            case
                when g.kernel_id is null
                then 'no later work'
                when l.start_ns is null or l.start_ns > g.to_ns
                then 'unknown'
                when g.is_within_launch
                then 'within one launch'
                when g.from_ns is null or l.start_ns > g.from_ns
                then 'waiting for a launch'
                when g.is_beside_collective
                then 'waiting for ranks'
                when g.is_beside_copy
                then 'waiting for a copy'
                else 'launch latency'
            end as cause,
            coalesce(g.from_ns, -9223372036854775807) as open_ns,
            coalesce(g.to_ns, 9223372036854775807) as shut_ns
        from gap as g
        left join launch_of_any_step as l on l.launch_id = g.launch_id
    ),
    -- On each thread the calls that wait, and until when those that have begun so far run.
    moment as (
        select
            trace_id, pid, tid, start_ns, start_ns + dur_ns as copied_ns, null::bigint as synced_ns
        from launch_of_any_step
        where launch_id in (select launch_id from reached where is_with_host)
        union all by name
        select trace_id, pid, tid, start_ns, start_ns + dur_ns as synced_ns
        from other_event_of_any_step
        where
            name like '%Synchronize%'
            and regexp_matches(name, '^(cu|cuda|hip)\w*Synchronize')
            and dur_ns is not null
    ),
    thread as materialized(
        select unnest(list(one), recursive := true)
        from
            (
                select trace_id, pid, tid, row_number() over () as thread_number
                from (select distinct trace_id, pid, tid from moment)
            ) as one
    ),
    called as (
        select
            t.thread_number,
            m.start_ns,
            max(m.copied_ns) over so_far as until_copied_ns,
            max(m.synced_ns) over so_far as until_synced_ns
        from moment as m
        join
            thread as t
            on t.trace_id = m.trace_id
            and t.pid is not distinct from m.pid
            and t.tid is not distinct from m.tid
        window so_far as (partition by t.thread_number order by m.start_ns)
    ),
    waiting as (
        select j.trace_id, j.device, j.kernel_id, j.open_ns, j.shut_ns, t.thread_number
        from judged as j
        join launch_of_any_step as l on l.launch_id = j.launch_id
        left join
            thread as t
            on t.trace_id = l.trace_id
            and t.pid is not distinct from l.pid
            and t.tid is not distinct from l.tid
        where j.cause = 'waiting for a launch'
    ),
    told as (
        select trace_id, device, kernel_id, cause, open_ns, shut_ns
        from judged
        where cause <> 'waiting for a launch'
        union all by name
        select
            w.trace_id,
            w.device,
            w.kernel_id,
            case
                when c.until_copied_ns >= w.open_ns
                then 'waiting for a copy call'
                when c.until_synced_ns >= w.open_ns
                then 'waiting for a sync'
                else 'waiting for a launch'
            end as cause,
            w.open_ns,
            w.shut_ns
        from waiting as w
        asof left join called as c on c.thread_number = w.thread_number and c.start_ns <= w.open_ns
    ),
    span as (
        select
            trace_id,
            case when $by_step then number end as step,
            case when $by_step then start_ns end as step_start_ns,
            start_ns,
            start_ns + dur_ns as end_ns,
            max(start_ns + dur_ns) over (
                partition by trace_id, step_start_ns
                order by start_ns, step_id
                rows between unbounded preceding and 1 preceding
            ) as before_ns
        from step
        where dur_ns > 0
    ),
    inside as (
        select
            j.trace_id,
            s.step,
            s.step_start_ns,
            j.device,
            j.cause,
            j.kernel_id,
            greatest(s.start_ns, j.open_ns) as start_ns,
            least(s.end_ns, j.shut_ns) - greatest(s.start_ns, j.open_ns) as idle_ns,
            -- A gap that reaches over several steps is one gap.
            coalesce(s.before_ns <= j.open_ns, true) as is_first
        from told as j
        join
            span as s on s.trace_id = j.trace_id and j.open_ns < s.end_ns and j.shut_ns > s.start_ns
    ),
    windows as (
        select
            trace_id,
            case when $by_step then start_ns end as step_start_ns,
            sum(dur_ns)::bigint as window_ns
        from step
        group by all
    ),
    grouped as materialized(
        select
            trace_id,
            step,
            step_start_ns,
            device,
            cause,
            count(*) filter (where is_first) as gaps,
            sum(idle_ns)::bigint as idle_ns,
            max(idle_ns) as longest_ns,
            first(
                {'start_ns':start_ns, 'kernel_id':kernel_id} order by inside.idle_ns desc, start_ns
            ) as longest
        from inside
        group by trace_id, step, step_start_ns, device, cause
    ),
    -- By way of one list, so that the engine knows how few they are.
    named as materialized(
        select kernel_id, name, op_name
        from kernel_of_any_step
        where kernel_id in (select unnest(list(longest.kernel_id)) from grouped)
    )
select
    t.rank,
    g.step,
    g.device,
    g.cause,
    g.cause in ('waiting for ranks', 'waiting for a copy', 'launch latency') as is_inferred,
    g.gaps,
    g.idle_ns,
    g.idle_ns / w.window_ns as share_frac,
    g.longest_ns,
    g.longest.start_ns as longest_start_ns,
    k.op_name as longest_op,
    k.name as longest_kernel
from grouped as g
left join named as k on k.kernel_id = g.longest.kernel_id
join trace as t on t.trace_id = g.trace_id
join
    windows as w on w.trace_id = g.trace_id and w.step_start_ns is not distinct from g.step_start_ns
order by
    t.rank nulls first, g.trace_id, g.step_start_ns, g.device nulls first, g.idle_ns desc, g.cause
