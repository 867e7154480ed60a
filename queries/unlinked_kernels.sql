-- /// query
-- summary = "Which device work has no op, and why?"
-- requires = ["kernel.dur_ns"]
--
-- [params]
-- top = { default = 20, doc = "Rows to return, 0 for all." }
--
-- [columns]
-- reason = "What is missing: the launch, the op around it, or the correlation."
-- cause = "What probably happened."
-- kernel = "Kernel name as the profiler reports it."
-- role = "Role, from the name alone."
-- calls = "Pieces of work."
-- total_ns = "Summed duration."
-- share_frac = "total_ns over that of all device work, linked or not."
--
-- [[notes]]
-- status = "exact"
-- text = "{0} pieces of device work have no op: {1:.1f} % of device time."
-- sql = '''
-- select
-- count(*) filter (where op_id is null) as pieces,
-- 100.0 * sum(dur_ns) filter (where op_id is null) / nullif(sum(dur_ns), 0)
-- from kernel
-- having pieces > 0
-- '''
--
-- [[notes]]
-- status = "exact"
-- text = "Every piece of device work has an op."
-- sql = "select 1 where not exists (select 1 from kernel where op_id is null)"
-- ///
with
    first_launch as (
        select trace_id, min(start_ns) as launch_ns, min(correlation) as correlation
        from launch
        group by trace_id
    ),
    op_rows as (select distinct trace_id from op),
    marked as (
        select
            k.unlinked_reason as reason,
            case
                when o.trace_id is null
                then 'no CPU ops were recorded'
                when k.launch_id is null and k.correlation is null
                then 'the exporter wrote no correlation'
                when k.launch_id is null and f.trace_id is null
                then 'no launch was recorded'
                -- correlations count up: one below the first launch's was given out before it
                when
                    k.launch_id is null
                    and (k.start_ns < f.launch_ns or k.correlation < f.correlation)
                then 'launched before the recording began'
                when k.launch_id is null
                then 'its launch row was lost, or is a call the profiler does not record'
                when l.name ilike '%graphlaunch%'
                then 'replayed from a graph that was launched outside every op'
                else 'launched by code that PyTorch does not record as an op'
            end as cause,
            k.name,
            k.role,
            k.dur_ns
        from kernel as k
        left join first_launch as f on f.trace_id = k.trace_id
        left join op_rows as o on o.trace_id = k.trace_id
        left join launch as l on l.launch_id = k.launch_id
        where k.op_id is null
    ),
    whole as (select sum(dur_ns) as dur_ns from kernel)
select
    reason,
    cause,
    name as kernel,
    role,
    count(*) as calls,
    sum(m.dur_ns)::bigint as total_ns,
    sum(m.dur_ns) / nullif((select dur_ns from whole), 0) as share_frac
from marked as m
group by reason, cause, name, role
order by total_ns desc, kernel, cause, role
limit case when $top > 0 then $top else 9223372036854775807 end
