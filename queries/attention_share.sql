-- /// query
-- summary = "How much of the time is attention, forward and backward?"
-- requires = ["work.dur_ns"]
--
-- [columns]
-- phase = "Phase of the step; all for the whole."
-- total_ns = "Summed duration of the phase's work; concurrent streams count twice."
-- attention_ns = "Work whose role is attention.*: projections, layout and the core."
-- attention_frac = "attention_ns over total_ns."
-- core_ns = "Scores, softmax and values, fused (attention.core) or not."
-- core_frac = "core_ns over total_ns."
-- rest_ns = "Work with any other role."
-- unlinked_ns = "The part of rest_ns that has no op and whose name does not tell its role."
-- pieces = "Pieces of attention work: kernels, copies and sets, or CPU ops."
--
-- [[notes]]
-- status = "estimated"
-- text = "{0:.1f} % of the attention time has its role by inference only (role_confidence)."
-- column = "inferred"
--
-- [[notes]]
-- status = "estimated"
-- text = """No nn.Module rows were recorded: attention that is not fused, and the projections
-- around a core, are told from order and shapes alone. Record with with_stack=True."""
-- sql = "select 1 where not (select bool_or(has_modules) from trace)"
--
-- [[notes]]
-- status = "estimated"
-- text = '''The role of {0:.1f} % of the time is not known (other, unlinked), and attention may be
-- in it: attention_ns is a lower bound.'''
-- column = "unknown"
-- ///
with
    marked as materialized(
        select
            phase,
            dur_ns,
            role like 'attention.%' as is_attention,
            role in (
                'attention.core', 'attention.scores', 'attention.softmax', 'attention.values'
            ) as is_core,
            role = 'unlinked' as is_unlinked,
            role in ('other', 'unlinked') as is_unknown,
            role_confidence = 'inferred' as is_inferred
        from work
    ),
    said as (
        select
            100.0
            * sum(dur_ns) filter (where is_attention and is_inferred)
            / sum(dur_ns) filter (where is_attention) as inferred,
            100.0 * sum(dur_ns) filter (where is_unknown) / sum(dur_ns) as unknown
        from marked
    )
select
    coalesce(phase, 'all') as phase,
    sum(dur_ns)::bigint as total_ns,
    coalesce(sum(dur_ns) filter (where is_attention), 0)::bigint as attention_ns,
    attention_ns / nullif(total_ns, 0) as attention_frac,
    coalesce(sum(dur_ns) filter (where is_core), 0)::bigint as core_ns,
    core_ns / nullif(total_ns, 0) as core_frac,
    total_ns - attention_ns as rest_ns,
    coalesce(sum(dur_ns) filter (where is_unlinked), 0)::bigint as unlinked_ns,
    count(*) filter (where is_attention) as pieces,
    (select inferred from said where inferred > 0) as inferred,
    (select unknown from said where unknown >= 5) as unknown
from marked
group by grouping sets ((), (phase))
order by grouping(phase) desc, total_ns desc, phase
