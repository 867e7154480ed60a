-- /// query
-- summary = "Which kernels take the time, one row a name?"
-- requires = ["work.dur_ns"]
--
-- [params]
-- top = { default = 20, doc = "Rows to return, 0 for all." }
--
-- [columns]
-- kernel = "Kernel name as the profiler reports it; op name where there is no device."
-- family = "Kernel family; null where the name is not known, and on the CPU."
-- role = "Role of most of its time."
-- calls = "Times it ran."
-- total_ns = "Summed duration; concurrent streams count twice."
-- share_frac = "total_ns over that of all work."
-- cumulative_frac = "share_frac of this row and those above it."
-- mean_ns = "Mean duration."
-- p50_ns = "Median duration, a value that occurs."
-- p99_ns = "99th percentile of the duration, a value that occurs."
-- max_ns = "Longest duration."
--
-- [[notes]]
-- status = "info"
-- text = "{0} names in all; -p top=0 shows every one."
-- column = "all_rows"
-- ///
with
    pieces as materialized(select name, family, role, dur_ns from work),
    by_role as (select name, role, sum(dur_ns) as role_ns from pieces group by name, role),
    main_role as (
        select name, first(role order by role_ns desc, role) as role from by_role group by name
    ),
    by_name as (
        select
            name,
            any_value(family) as family,
            count(*) as calls,
            sum(dur_ns)::bigint as total_ns,
            avg(dur_ns) as mean_ns,
            quantile_disc(dur_ns, 0.5) as p50_ns,
            quantile_disc(dur_ns, 0.99) as p99_ns,
            max(dur_ns) as max_ns
        from pieces
        group by name
    )
select
    name as kernel,
    family,
    role,
    calls,
    total_ns,
    total_ns / nullif(sum(total_ns) over (), 0) as share_frac,
    sum(total_ns) over (order by total_ns desc, name rows unbounded preceding)
    / nullif(sum(total_ns) over (), 0) as cumulative_frac,
    mean_ns,
    p50_ns,
    p99_ns,
    max_ns,
    case when $top > 0 and count(*) over () > $top then count(*) over () end as all_rows
from by_name
join main_role using (name)
order by total_ns desc, kernel
limit case when $top > 0 then $top else 9223372036854775807 end
