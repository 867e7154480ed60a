-- /// query
-- summary = "What takes the time: by role, module class, op and kernel family?"
-- requires = ["work.dur_ns"]
--
-- [params]
-- by_step = { default = false, doc = "Give each profiler step its own rows." }
-- top = { default = 40, doc = "Rows to return, 0 for all." }
--
-- [params.by]
-- default = "role,module,op,family"
-- choices = ["role", "module", "op", "family", "phase"]
-- doc = "What to group by, separated by commas: role, module, op, family, phase."
--
-- [columns]
-- step = "Profiler step the work was launched in, or none; null unless grouped by step."
-- phase = "forward, backward, recompute, optimizer or other; null unless grouped by."
-- role = "What the work does in the model."
-- module_class = "Class of the innermost nn.Module around its op; null where none was recorded."
-- op = "Innermost op around its launch; null where its launch is not in the trace."
-- family = "Kernel family by name; null where the name is not known, and on the CPU."
-- calls = "Pieces of work."
-- total_ns = "Summed duration; concurrent streams count twice."
-- share_frac = "total_ns over that of all work shown and not shown."
-- mean_ns = "Mean duration."
-- p50_ns = "Median duration, a value that occurs."
-- p99_ns = "99th percentile of the duration, a value that occurs."
-- per_step_ns = "Its time within steps over the number of steps it ran in; null where in none."
--
-- [[notes]]
-- status = "info"
-- text = "{0} groups in all; -p top=0 shows every one."
-- column = "all_groups"
--
-- [[notes]]
-- status = "warning"
-- text = "Step {0} was cold ({1:.1f} ms): leave it out with --steps."
-- sql = "select number, dur_ns / 1e6 from step where is_cold limit 1"
-- ///
with
    picked as (
        select
            case when $by_step then coalesce(step::varchar, 'none') end as step,
            case when list_contains(string_split($by, ','), 'phase') then phase end as phase,
            case when list_contains(string_split($by, ','), 'role') then role end as role,
            case
                when list_contains(string_split($by, ','), 'module') then module_class
            end as module_class,
            case when list_contains(string_split($by, ','), 'op') then op_name end as op,
            case when list_contains(string_split($by, ','), 'family') then family end as family,
            step_id,
            dur_ns
        from work
    )
select
    step,
    phase,
    role,
    module_class,
    op,
    family,
    count(*) as calls,
    sum(dur_ns)::bigint as total_ns,
    sum(dur_ns) / nullif(sum(sum(dur_ns)) over (), 0) as share_frac,
    avg(dur_ns) as mean_ns,
    quantile_disc(dur_ns, 0.5) as p50_ns,
    quantile_disc(dur_ns, 0.99) as p99_ns,
    sum(dur_ns) filter (where step_id is not null)
    / nullif(count(distinct step_id), 0) as per_step_ns,
    case when $top > 0 and count(*) over () > $top then count(*) over () end as all_groups
from picked
group by step, phase, role, module_class, op, family
order by
    total_ns desc,
    step nulls last,
    role,
    phase nulls last,
    module_class nulls last,
    op nulls last,
    family nulls last
limit case when $top > 0 then $top else 9223372036854775807 end
