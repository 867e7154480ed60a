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
    copied as materialized(
        select
            kernel_id,
            stream,
            launch_id,
            regexp_matches(name, '(?i)htod|hosttodevice') as is_upload,
            regexp_matches(name, '(?i)htod|dtoh|hosttodev|devicetoho') as is_with_host
        from kernel_of_any_step
        where kind = 'memcpy'
    ),
    gathered as materialized(
        select kernel_id
        from kernel_of_any_step
        where family in ('nccl', 'rccl', 'symmetric_memory', 'custom_all_reduce', 'deep_ep')
        union
        select kernel_id
        from collective
        where kernel_id is not null
    ),
    busy as materialized(
        select trace_id, device, min(start_ns) as start_ns, max(start_ns + dur_ns) as end_ns
        from kernel_of_any_step
        group by trace_id, device
    ),
    cause as (
        select *
        from
            (
                values
                    (0, 'unknown'),
                    (1, 'within one launch'),
                    (2, 'waiting for a launch'),
                    (3, 'waiting for ranks'),
                    (4, 'waiting for a copy'),
                    (5, 'launch latency'),
                    (6, 'waiting for a copy call'),
                    (7, 'waiting for a sync'),
                    (8, 'no later work')
            ) as c(number, name)
    ),
    gap as (
        select *, free_ns as open_ns, free_ns + idle_ns as shut_ns
        from device_wait_of_any_step
        where idle_ns > 0
        union all by name
        select w.*, -9223372036854775807 as open_ns, b.start_ns as shut_ns
        from device_wait_of_any_step as w
        join busy as b on b.trace_id = w.trace_id and b.device is not distinct from w.device
        where w.free_ns is null
    ),
    judged as materialized(
        select
            w.trace_id,
            w.device,
            w.step_id,
            w.kernel_id,
            case
                when w.launched_ns is null or w.launched_ns > w.shut_ns
                then 0
                when w.is_same_launch
                then 1
                when w.launched_ns > w.open_ns
                then 2
                when
                    w.kernel_id in (select kernel_id from gathered)
                    or w.before_id in (select kernel_id from gathered)
                then 3
                when
                    w.kernel_id in (select kernel_id from copied where is_upload)
                    or b.is_upload
                    or b.stream is distinct from w.stream
                    and b.kernel_id is not null
                then 4
                else 5
            end::tinyint as cause,
            w.open_ns,
            w.shut_ns
        from gap as w
        left join copied as b on b.kernel_id = w.before_id
        union all by name
        select
            trace_id, device, 8::tinyint as cause, end_ns as open_ns, 9223372036854775807 as shut_ns
        from busy
    ),
    -- Calls that wait, and until when.
    moment as materialized(
        select
            trace_id, pid, tid, start_ns, start_ns + dur_ns as copied_ns, null::bigint as synced_ns
        from launch_of_any_step
        where launch_id in (select launch_id from copied where is_with_host)
        union all by name
        select trace_id, pid, tid, start_ns, start_ns + dur_ns as synced_ns
        from other_event_of_any_step
        where
            name like '%Synchronize%'
            and regexp_matches(name, '^(cu|cuda|hip)\w*Synchronize')
            and dur_ns is not null
    ),
    -- First whether any thread was in one then, since mostly none was.
    called_by_any as (
        select trace_id, start_ns, max(greatest(copied_ns, synced_ns)) over so_far as until_ns
        from moment
        window so_far as (partition by trace_id order by start_ns)
    ),
    waiting as materialized(
        select j.kernel_id, j.open_ns
        from judged as j
        asof join called_by_any as c on c.trace_id = j.trace_id and c.start_ns <= j.open_ns
        where j.cause = 2 and c.until_ns >= j.open_ns
    ),
    called as (
        select
            {'trace_id':trace_id, 'pid':pid, 'tid':tid} as thread,
            start_ns,
            max(copied_ns) over so_far as until_copied_ns,
            max(synced_ns) over so_far as until_synced_ns
        from moment
        window so_far as (partition by trace_id, pid, tid order by start_ns)
    ),
    launching as (
        select w.kernel_id, w.open_ns, {'trace_id':l.trace_id, 'pid':l.pid, 'tid':l.tid} as thread
        from waiting as w
        join kernel_of_any_step as k on k.kernel_id = w.kernel_id
        join launch_of_any_step as l on l.launch_id = k.launch_id
    ),
    waited as materialized(
        select
            l.kernel_id,
            case
                when c.until_copied_ns >= l.open_ns
                then 6
                when c.until_synced_ns >= l.open_ns
                then 7
            end::tinyint as cause
        from launching as l
        asof join called as c on c.thread = l.thread and c.start_ns <= l.open_ns
    ),
    told as (
        select
            j.trace_id,
            j.device,
            j.step_id,
            j.kernel_id,
            coalesce(w.cause, j.cause) as cause,
            j.open_ns,
            j.shut_ns
        from judged as j
        left join waited as w on w.kernel_id = j.kernel_id
    ),
    span as materialized(
        select
            trace_id,
            step_id,
            case when $by_step then number end as step,
            case when $by_step then start_ns end as step_start_ns,
            start_ns,
            start_ns + dur_ns as end_ns,
            max(start_ns + dur_ns) over (
                partition by trace_id, step_start_ns
                order by start_ns, step_id
                rows between unbounded preceding and 1 preceding
            ) as before_ns,
            coalesce(
                max(start_ns + dur_ns) over (
                    partition by trace_id
                    order by start_ns, step_id
                    rows between unbounded preceding and 1 preceding
                )
                > start_ns
                or lead(start_ns) over (partition by trace_id order by start_ns, step_id) < end_ns,
                false
            ) as is_overlapped
        from step
        where dur_ns > 0
    ),
    -- Most gaps lie inside the step in which what ends them was launched.
    placed as not materialized(
        select t.*, s.step_id as inside_id, s.step, s.step_start_ns
        from told as t
        left join
            span as s
            on s.step_id = t.step_id
            and s.start_ns <= t.open_ns
            and s.end_ns >= t.shut_ns
            and not s.is_overlapped
    ),
    inside as (
        select
            trace_id,
            step,
            step_start_ns,
            device,
            cause,
            kernel_id,
            open_ns as start_ns,
            shut_ns - open_ns as idle_ns,
            true as is_first
        from placed
        where inside_id is not null
        union all by name
        select
            p.trace_id,
            s.step,
            s.step_start_ns,
            p.device,
            p.cause,
            p.kernel_id,
            greatest(s.start_ns, p.open_ns) as start_ns,
            least(s.end_ns, p.shut_ns) - greatest(s.start_ns, p.open_ns) as idle_ns,
            -- A gap that reaches over several steps is one gap.
            coalesce(s.before_ns <= p.open_ns, true) as is_first
        from placed as p
        join
            span as s on s.trace_id = p.trace_id and p.open_ns < s.end_ns and p.shut_ns > s.start_ns
        where p.inside_id is null
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
    c.name as cause,
    g.cause in (3, 4, 5) as is_inferred,
    g.gaps,
    g.idle_ns,
    g.idle_ns / w.window_ns as share_frac,
    g.longest_ns,
    g.longest.start_ns as longest_start_ns,
    k.op_name as longest_op,
    k.name as longest_kernel
from grouped as g
join cause as c on c.number = g.cause
left join named as k on k.kernel_id = g.longest.kernel_id
join trace as t on t.trace_id = g.trace_id
join
    windows as w on w.trace_id = g.trace_id and w.step_start_ns is not distinct from g.step_start_ns
order by
    t.rank nulls first, g.trace_id, g.step_start_ns, g.device nulls first, g.idle_ns desc, c.name
