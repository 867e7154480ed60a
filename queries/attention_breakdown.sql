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
-- text = """Attention takes {0[share]:.1f} % of the time of all work: {0[ms]:.3f} ms, as far as
-- its roles are known."""
-- column = "of_work"
--
-- [[notes]]
-- status = "estimated"
-- text = "{0:.1f} % of the attention time has its role by inference only (role_confidence)."
-- column = "inferred"
--
-- [[notes]]
-- status = "estimated"
-- text = """The role of {0:.1f} % of the time is not known (other, unlinked), and attention may be
-- in it: what is here is a lower bound."""
-- sql = '''
-- select 100.0 * sum(dur_ns) filter (where role in ('other', 'unlinked')) / sum(dur_ns) as share
-- from work
-- having share >= 5
-- '''
--
-- [[notes]]
-- status = "not_derivable"
-- text = """No layers: no nn.Module rows were recorded. The projections around a core, and
-- attention that is not fused, are told from order and shapes. Record with with_stack=True."""
-- sql = "select 1 where not (select bool_or(has_modules) from trace)"
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
-- column = "outside"
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
    module_call as materialized(
        select trace_id, module_id, parent_id, pid, tid, start_ns, start_ns + dur_ns as end_ns
        from frame
        where name like 'nn.Module: %'
    ),
    caller as (
        select frame_id, module_id from frame where frame_id in (select parent_id from module_call)
    ),
    callers as (
        select c.module_id
        from module_call as c
        join caller as p on p.frame_id = c.parent_id
        group by c.module_id
        having count(distinct p.module_id) > 1
    ),
    shared as (
        select module_id
        from callers
        union
        select m.module_id
        from module as m
        join shared as s on m.parent_id = s.module_id
    ),
    entered as (
        select c.trace_id, c.pid, c.tid, c.start_ns, c.end_ns, l.*
        from module_call as c
        join layers as l on l.module_id = c.module_id and l.attention_id = c.module_id
    ),
    asked as (
        select
            w.op_id,
            w.module_id,
            w.phase,
            w.role,
            w.role_confidence,
            w.dur_ns,
            s.module_id is not null as is_shared
        from work as w
        left join shared as s on s.module_id = w.module_id
        where w.role like 'attention.%'
    ),
    origins as (
        select
            o.op_id,
            o.trace_id,
            o.pid,
            case when o.forward_op_id is null then o.tid else f.tid end as tid,
            case when o.forward_op_id is null then o.start_ns else f.start_ns end as start_ns
        from op as o
        left join op as f on f.op_id = o.forward_op_id
        where o.op_id in (select op_id from asked where is_shared)
    ),
    placed as (
        select o.op_id, e.layer, e.attention_id
        from origins as o
        asof join
            entered as e
            on e.trace_id = o.trace_id
            and e.pid = o.pid
            and e.tid = o.tid
            and e.start_ns <= o.start_ns
        where o.start_ns < e.end_ns
    ),
    pieces as materialized(
        select
            case when a.is_shared then p.layer else l.layer end as layer,
            case when a.is_shared then p.attention_id else l.attention_id end as attention_id,
            a.phase,
            a.role,
            a.role_confidence,
            a.dur_ns,
            l.module_id is null as is_outside
        from asked as a
        left join layers as l on l.module_id = a.module_id
        left join placed as p on p.op_id = a.op_id
    ),
    whole as materialized(select sum(dur_ns) as dur_ns from work),
    said as (
        select
            sum(p.dur_ns) / 1e6 as ms,
            100.0 * sum(p.dur_ns) / nullif(any_value(w.dur_ns), 0) as share,
            100.0
            * sum(p.dur_ns) filter (where p.role_confidence = 'inferred')
            / sum(p.dur_ns) as inferred,
            100.0 * sum(p.dur_ns) filter (where p.is_outside) / sum(p.dur_ns) as outside
        from pieces as p
        cross join whole as w
    )
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
    / nullif(sum(dur_ns), 0) as inferred_frac,
    (select {'share':share, 'ms':ms} from said where share is not null) as of_work,
    (select inferred from said where inferred > 0) as inferred,
    (select outside from said where outside >= 0.05 and exists (from layers)) as outside
from pieces
group by 1, 2, 3
order by layer nulls last, total_ns desc, phase, role
