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
-- sql = "select 1 where not exists (select 1 from kernel_of_any_step where op_id is null)"
--
-- [[notes]]
-- status = "info"
-- text = "{0} rows in all; -p top=0 shows every one."
-- column = "all_rows"
-- ///
with whole as (select sum(dur_ns) as dur_ns from kernel)
select
    unlinked_reason as reason,
    unlinked_cause as cause,
    name as kernel,
    role,
    count(*) as calls,
    sum(k.dur_ns)::bigint as total_ns,
    sum(k.dur_ns) / nullif((select dur_ns from whole), 0) as share_frac,
    case when $top > 0 and count(*) over () > $top then count(*) over () end as all_rows
from kernel as k
where op_id is null
group by reason, cause, name, role
order by total_ns desc, kernel, cause, role
limit case when $top > 0 then $top else 9223372036854775807 end
