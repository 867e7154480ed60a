-- /// query
-- summary = "What does each module cost forward, backward and in recomputation?"
-- requires = ["work.dur_ns"]
--
-- [params]
-- top = { default = 30, doc = "Rows to return, 0 for all." }
--
-- [params.by]
-- default = "module"
-- choices = ["module", "role"]
-- doc = "What to group by, separated by commas: module, role."
--
-- [columns]
-- module_class = "Class of the innermost nn.Module around the op; null where none was recorded."
-- role = "What the work does in the model; null unless grouped by."
-- forward_ns = "Time of forward work; concurrent streams count twice."
-- backward_ns = "Time of backward work, the recomputation in it left out."
-- recompute_ns = """Time of forward work done again in the backward pass (activation
-- checkpointing)."""
-- backward_frac = "backward_ns over forward_ns; null where either is not there."
-- recompute_frac = "recompute_ns over forward_ns; null where either is not there."
-- share_frac = "Time of the three over that of all of them."
-- forward_kernels = "Pieces of forward work."
-- backward_kernels = "Pieces of backward work."
-- recompute_kernels = "Pieces of recomputed work."
--
-- [[notes]]
-- status = "info"
-- text = """No backward work was recorded, as in inference: backward_frac is null and can't be
-- derived."""
-- sql = "select 1 where not exists (select 1 from work where phase = 'backward')"
--
-- [[notes]]
-- status = "info"
-- text = "No forward work was recorded: backward_frac is null and can't be derived."
-- sql = '''
-- select 1
-- where exists (select 1 from work where phase = 'backward')
-- and not exists (select 1 from work where phase = 'forward')
-- '''
--
-- [[notes]]
-- status = "exact"
-- text = """Recomputation is counted by itself: {0[ms]:.3f} ms, {0[percent]:.1f} % of the forward
-- time."""
-- column = "recomputed"
--
-- [[notes]]
-- status = "exact"
-- text = "{0:.1f} % of the time of all work is in other phases (optimizer, other) and not here."
-- sql = '''
-- select
-- 100.0 * sum(dur_ns) filter (where phase in ('optimizer', 'other')) / sum(dur_ns) as share
-- from work
-- having share >= 0.05
-- '''
--
-- [[notes]]
-- status = "info"
-- text = """No nn.Module rows were recorded: -p by=role groups by what the work does. Record with
-- with_stack=True."""
-- sql = "select 1 where not exists (select 1 from module)"
--
-- [[notes]]
-- status = "info"
-- text = """{0:.1f} % of the backward time has no module: its forward op ran in none, or is not
-- known."""
-- sql = '''
-- select 100.0 * sum(dur_ns) filter (where module_id is null) / sum(dur_ns) as share
-- from work
-- where phase = 'backward'
-- having share >= 1 and exists (select 1 from module)
-- '''
--
-- [[notes]]
-- status = "info"
-- text = "{0} rows in all; -p top=0 shows every one."
-- column = "all_rows"
-- ///
with
    picked as (
        select
            case
                when list_contains(string_split($by, ','), 'module') then module_class
            end as module_class,
            case when list_contains(string_split($by, ','), 'role') then role end as role,
            phase,
            dur_ns
        from work
        where phase in ('forward', 'backward', 'recompute')
    ),
    sums as (
        select
            module_class,
            role,
            coalesce(sum(dur_ns) filter (where phase = 'forward'), 0)::bigint as forward_ns,
            coalesce(sum(dur_ns) filter (where phase = 'backward'), 0)::bigint as backward_ns,
            coalesce(sum(dur_ns) filter (where phase = 'recompute'), 0)::bigint as recompute_ns,
            sum(dur_ns) as total_ns,
            count(*) filter (where phase = 'forward') as forward_kernels,
            count(*) filter (where phase = 'backward') as backward_kernels,
            count(*) filter (where phase = 'recompute') as recompute_kernels
        from picked
        group by module_class, role
    ),
    recomputed as (
        select
            sum(recompute_ns) / 1e6 as ms,
            100.0 * sum(recompute_ns) / nullif(sum(forward_ns), 0) as percent
        from sums
        having sum(recompute_kernels) > 0 and percent is not null
    )
select
    module_class,
    role,
    forward_ns,
    backward_ns,
    recompute_ns,
    case when backward_kernels > 0 then backward_ns / nullif(forward_ns, 0) end as backward_frac,
    case when recompute_kernels > 0 then recompute_ns / nullif(forward_ns, 0) end as recompute_frac,
    total_ns / nullif(sum(total_ns) over (), 0) as share_frac,
    forward_kernels,
    backward_kernels,
    recompute_kernels,
    case when $top > 0 and count(*) over () > $top then count(*) over () end as all_rows,
    (select r from recomputed as r) as recomputed
from sums
order by total_ns desc, module_class nulls last, role nulls last
limit case when $top > 0 then $top else 9223372036854775807 end
