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
    piece as materialized(
        select
            *,
            start_ns + dur_ns as end_ns,
            kind = 'memcpy' and regexp_matches(name, '(?i)htod|hosttodevice') as is_upload,
            coalesce(
                family in ('nccl', 'rccl', 'symmetric_memory', 'custom_all_reduce', 'deep_ep'),
                false
            )
            or kernel_id
            in (select kernel_id from collective where kernel_id is not null) as is_collective
        from kernel_of_any_step
    ),
    reached as (
        select
            *,
            max(end_ns) over (
                partition by trace_id, device
                order by start_ns, end_ns, kernel_id
                rows between unbounded preceding and 1 preceding
            ) as idle_ns
        from piece
    ),
    gap as materialized(
        select trace_id, device, idle_ns as from_ns, start_ns as to_ns, kernel_id
        from reached
        where idle_ns is null or start_ns > idle_ns
        union all by name
        select trace_id, device, max(end_ns) as from_ns, null as to_ns, null as kernel_id
        from piece
        group by trace_id, device
    ),
    last_before as (
        select
            g.trace_id,
            g.device,
            g.from_ns,
            first(p.kernel_id order by p.start_ns desc, p.kernel_id desc) as kernel_id
        from gap as g
        join
            piece as p
            on p.trace_id = g.trace_id
            and p.device is not distinct from g.device
            and p.end_ns = g.from_ns
        group by g.trace_id, g.device, g.from_ns
    ),
    between_pieces as materialized(
        select
            g.*,
            b.is_upload as is_after_upload,
            b.kind = 'memcpy' and b.stream is distinct from p.stream as is_after_other_copy,
            b.is_collective or p.is_collective as is_beside_collective,
            b.launch_id as launch_before_id,
            p.is_upload,
            p.name as kernel,
            p.op_name as op,
            l.launch_id,
            l.pid,
            l.tid,
            l.start_ns as launched_ns
        from gap as g
        left join
            last_before as n
            on n.trace_id = g.trace_id
            and n.device is not distinct from g.device
            and n.from_ns = g.from_ns
        left join piece as b on b.kernel_id = n.kernel_id
        left join piece as p on p.kernel_id = g.kernel_id
        left join launch_of_any_step as l on l.launch_id = p.launch_id
    ),
    moment as (
        select
            trace_id,
            pid,
            tid,
            start_ns as time_ns,
            start_ns + dur_ns as copied_ns,
            null::bigint as synced_ns,
            null::bigint as gap_id
        from launch_of_any_step
        where
            launch_id in (
                select launch_id
                from piece
                where kind = 'memcpy' and regexp_matches(name, '(?i)htod|dtoh|hosttodev|devicetoho')
            )
        union all by name
        select trace_id, pid, tid, start_ns as time_ns, start_ns + dur_ns as synced_ns
        from other_event_of_any_step
        where regexp_matches(name, '^(cu|cuda|hip)\w*Synchronize') and dur_ns is not null
        union all by name
        select trace_id, pid, tid, from_ns as time_ns, kernel_id as gap_id
        from between_pieces
        where launched_ns > from_ns
    ),
    called as (
        select
            gap_id, max(copied_ns) over so_far as copied_ns, max(synced_ns) over so_far as synced_ns
        from moment
        window so_far as (partition by trace_id, pid, tid order by time_ns)
    ),
    judged as materialized(
        select
            g.*,
            case
                when g.kernel_id is null
                then 'no later work'
                when g.launched_ns is null or g.launched_ns > g.to_ns
                then 'unknown'
                when g.launch_id = g.launch_before_id
                then 'within one launch'
                when g.from_ns is null or g.launched_ns > g.from_ns
                then
                    case
                        when c.copied_ns >= g.from_ns
                        then 'waiting for a copy call'
                        when c.synced_ns >= g.from_ns
                        then 'waiting for a sync'
                        else 'waiting for a launch'
                    end
                when g.is_beside_collective
                then 'waiting for ranks'
                when g.is_after_upload or g.is_after_other_copy or g.is_upload
                then 'waiting for a copy'
                else 'launch latency'
            end as cause,
            coalesce(g.from_ns, -9223372036854775807) as open_ns,
            coalesce(g.to_ns, 9223372036854775807) as shut_ns
        from between_pieces as g
        left join called as c on c.gap_id = g.kernel_id
    ),
    inside as (
        select
            j.trace_id,
            case when $by_step then s.number end as step,
            case when $by_step then s.start_ns end as step_start_ns,
            j.device,
            j.cause,
            greatest(s.start_ns, j.open_ns) as start_ns,
            least(s.start_ns + s.dur_ns, j.shut_ns) as end_ns,
            coalesce(j.kernel_id, -1) as gap_id,
            j.op,
            j.kernel
        from judged as j
        join
            step as s
            on s.trace_id = j.trace_id
            and j.open_ns < s.start_ns + s.dur_ns
            and j.shut_ns > s.start_ns
        where end_ns > start_ns
    ),
    windows as (
        select
            trace_id,
            case when $by_step then start_ns end as step_start_ns,
            sum(dur_ns)::bigint as window_ns
        from step
        group by all
    )
select
    t.rank,
    i.step,
    i.device,
    i.cause,
    i.cause in ('waiting for ranks', 'waiting for a copy', 'launch latency') as is_inferred,
    count(distinct i.gap_id) as gaps,
    sum(i.end_ns - i.start_ns)::bigint as idle_ns,
    sum(i.end_ns - i.start_ns) / any_value(w.window_ns) as share_frac,
    max(i.end_ns - i.start_ns) as longest_ns,
    first(i.start_ns order by i.end_ns - i.start_ns desc, i.start_ns) as longest_start_ns,
    first(i.op order by i.end_ns - i.start_ns desc, i.start_ns) as longest_op,
    first(i.kernel order by i.end_ns - i.start_ns desc, i.start_ns) as longest_kernel
from inside as i
join trace as t on t.trace_id = i.trace_id
join
    windows as w on w.trace_id = i.trace_id and w.step_start_ns is not distinct from i.step_start_ns
group by t.rank, i.trace_id, i.step, i.step_start_ns, i.device, i.cause
order by
    t.rank nulls first, i.trace_id, i.step_start_ns, i.device nulls first, idle_ns desc, i.cause
