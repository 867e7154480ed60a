-- /// query
-- summary = "How busy is the device in each step, and with what?"
-- requires = ["work.dur_ns"]
--
-- [columns]
-- rank = "Rank of the trace; null where it does not say."
-- step = "Number of the profiler step; null where the whole trace is one."
-- is_cold = "First of several steps and much slower than the others."
-- device = "Device index; null where no device was recorded."
-- window_ns = "Host time of the step, from entering to leaving it."
-- busy_ns = """Part of the window in which at least one piece of work ran, whatever step launched
-- it; streams count once. With --phase, work of that phase."""
-- idle_ns = "window_ns less busy_ns."
-- idle_frac = "idle_ns over window_ns."
-- role = "What the work does in the model; null where there was none."
-- role_ns = """Time of its work inside the window; concurrent streams count twice.
-- Without a device, self time of the ops that started in it."""
-- role_frac = "role_ns over that of all roles in the window."
--
-- [[notes]]
-- status = "exact"
-- text = "{0:.3f} ms of device work ran outside the steps shown."
-- column = "outside_ms"
--
-- [[notes]]
-- status = "warning"
-- text = """Work runs {0:.1f} ms after its launch (median), {1:.0f} % of a step: a step's window
-- holds work that earlier steps launched."""
-- sql = '''
-- with
-- delays as (
-- select median(k.start_ns - l.start_ns) as ns
-- from kernel_of_any_step as k join launch as l on l.launch_id = k.launch_id
-- ),
-- windows as (select median(dur_ns) as ns from step where number is not null)
-- select d.ns / 1e6, 100.0 * d.ns / w.ns from delays as d, windows as w where d.ns > 0.2 * w.ns
-- '''
--
-- [[notes]]
-- status = "info"
-- text = "No ProfilerStep marks: the whole trace is taken as one step."
-- sql = "select 1 from step where number is null limit 1"
-- ///
with
    interval as materialized(
        select trace_id, device, start_ns, start_ns + dur_ns as end_ns, role, null as self_ns
        from kernel_of_any_step
        union all by name
        select
            o.trace_id,
            null::bigint as device,
            o.start_ns,
            o.start_ns + case when o.kind = 'annotation' then 0 else o.dur_ns end as end_ns,
            o.role,
            case when o.kind = 'annotation' then 0 else o.self_ns end as self_ns
        from cpu_op as o
    ),
    reached as (
        select
            *,
            max(end_ns) over (
                partition by trace_id, device
                order by start_ns, end_ns
                rows between unbounded preceding and 1 preceding
            ) as before_ns
        from interval
    ),
    clipped as (
        select
            s.step_id,
            i.device,
            i.role,
            case when i.start_ns < s.start_ns then i.self_ns * 0 else i.self_ns end as self_ns,
            greatest(i.start_ns, s.start_ns) as start_ns,
            least(i.end_ns, s.start_ns + s.dur_ns) as end_ns,
            i.before_ns
        from reached as i
        join
            step as s
            on s.trace_id = i.trace_id
            and i.start_ns < s.start_ns + s.dur_ns
            and i.end_ns > s.start_ns
    ),
    spent as materialized(
        select
            step_id,
            device,
            role,
            sum(coalesce(self_ns, end_ns - start_ns))::bigint as role_ns,
            sum(greatest(0, end_ns - greatest(start_ns, coalesce(before_ns, start_ns))))::bigint
            as ran_ns
        from clipped
        group by step_id, device, role
    ),
    busy as (
        select step_id, device, sum(ran_ns)::bigint as ran_ns from spent group by step_id, device
    ),
    by_role as (select step_id, device, role, role_ns from spent where role_ns > 0),
    devices as (select distinct trace_id, device from interval),
    outside as (
        select
            (
                (select sum(dur_ns) from kernel_of_any_step)
                - coalesce((select sum(role_ns) from spent), 0)
            )
            / 1e6 as ms
    )
select
    t.rank,
    s.number as step,
    s.is_cold,
    d.device,
    s.dur_ns as window_ns,
    coalesce(b.ran_ns, 0) as busy_ns,
    window_ns - busy_ns as idle_ns,
    idle_ns / nullif(window_ns, 0) as idle_frac,
    r.role,
    r.role_ns,
    r.role_ns / nullif(sum(r.role_ns) over (partition by s.step_id, d.device), 0) as role_frac,
    (select ms from outside where ms > 0) as outside_ms
from step as s
join trace as t on t.trace_id = s.trace_id
join devices as d on d.trace_id = s.trace_id
left join busy as b on b.step_id = s.step_id and b.device is not distinct from d.device
left join by_role as r on r.step_id = s.step_id and r.device is not distinct from d.device
order by t.rank nulls first, s.start_ns, d.device nulls first, r.role_ns desc, r.role
