-- /// query
-- summary = "What is attention's time made of, role by role, in each phase and layer?"
-- requires = ["work.dur_ns"]
--
-- [params]
-- by_layer = { default = false, doc = "Give each attention layer its own rows." }
--
-- [columns]
-- layer = """Number of the attention module by first appearance, from 0; null unless asked for,
-- and for work that no such module is around."""
-- phase = "forward, backward, recompute, optimizer or other."
-- role = "The part of attention; core is a fused kernel of scores, softmax and values."
-- layers = "Attention modules that have such work; 0 where none was recorded around it."
-- calls = "Pieces of work: kernels, copies and sets, or CPU ops."
-- total_ns = "Summed duration; concurrent streams count twice."
-- attention_frac = "total_ns over the time of all attention."
-- share_frac = "total_ns over the time of all work."
-- certain_frac = "Share of total_ns whose role is certain."
-- likely_frac = "Share of total_ns whose role is likely."
-- inferred_frac = "Share of total_ns whose role is inferred only."
--
-- [[notes]]
-- status = "exact"
-- text = "Attention takes {0:.1f} % of the time of all work: {1:.3f} ms."
-- sql = '''
-- select
-- 100.0 * sum(dur_ns) filter (where role like 'attention.%') / nullif(sum(dur_ns), 0),
-- sum(dur_ns) filter (where role like 'attention.%') / 1e6
-- from work
-- '''
--
-- [[notes]]
-- status = "not_derivable"
-- text = """No layers: no nn.Module rows were recorded. Attention that is not fused, and the
-- linear layers around it, can't be told from other work either: what is here is a lower bound.
-- Record with with_stack=True."""
-- sql = "select 1 where not exists (select 1 from module)"
--
-- [[notes]]
-- status = "not_derivable"
-- text = "No layers: no nn.Module class that was recorded is known to be attention."
-- sql = '''
-- select 1
-- where exists (select 1 from module) and not exists (select 1 from module where kind =
-- 'attention')
-- '''
--
-- [[notes]]
-- status = "info"
-- text = "{0:.1f} % of attention's time ran in no attention module that was recorded: no layer."
-- sql = '''
-- with recursive
-- inside as (
-- select module_id from module where kind = 'attention'
-- union
-- select m.module_id from module as m join inside as i on m.parent_id = i.module_id
-- )
-- select
-- 100.0 * sum(dur_ns) filter (where module_id is null or module_id not in (from inside))
-- / sum(dur_ns) as share
-- from work
-- where role like 'attention.%'
-- having share >= 0.05 and exists (from inside)
-- '''
-- ///
with recursive
    nested as (
        select module_id, trace_id, case when kind = 'attention' then module_id end as attention_id
        from module
        where parent_id is null
        union all
        select
            m.module_id,
            m.trace_id,
            coalesce(
                n.attention_id, case when m.kind = 'attention' then m.module_id end
            ) as attention_id
        from module as m
        join nested as n on m.parent_id = n.module_id
    ),
    layers as (
        select
            module_id,
            attention_id,
            dense_rank() over (partition by trace_id order by attention_id) - 1 as layer
        from nested
        where attention_id is not null
    ),
    pieces as (
        select l.layer, l.attention_id, w.phase, w.role, w.role_confidence, w.dur_ns
        from work as w
        left join layers as l on l.module_id = w.module_id
        where w.role like 'attention.%'
    ),
    whole as (select sum(dur_ns) as dur_ns from work)
select
    case when $by_layer then layer end as layer,
    phase,
    role,
    count(distinct attention_id) as layers,
    count(*) as calls,
    sum(dur_ns)::bigint as total_ns,
    sum(dur_ns) / nullif(sum(sum(dur_ns)) over (), 0) as attention_frac,
    sum(dur_ns) / nullif((select dur_ns from whole), 0) as share_frac,
    coalesce(sum(dur_ns) filter (where role_confidence = 'certain'), 0)
    / nullif(sum(dur_ns), 0) as certain_frac,
    coalesce(sum(dur_ns) filter (where role_confidence = 'likely'), 0)
    / nullif(sum(dur_ns), 0) as likely_frac,
    coalesce(sum(dur_ns) filter (where role_confidence = 'inferred'), 0)
    / nullif(sum(dur_ns), 0) as inferred_frac
from pieces
group by 1, 2, 3
order by layer nulls last, total_ns desc, phase, role
