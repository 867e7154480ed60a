-- /// query
-- summary = "What does padding waste, in tokens, in attention pairs and in time?"
-- requires = ["batch.tokens"]
--
-- [columns]
-- step = "Number of the step."
-- role = "What the work does in the model; all for the step as a whole."
-- work_ns = "Time of the role's work in the step."
-- basis = """What its work grows with: tokens, pairs (query-key pairs of attention), none; null
-- where
-- that is not known."""
-- waste_frac = "Share of that basis spent on padding; for all, waste_ns over work_ns."
-- waste_ns = "waste_frac of work_ns: time in proportion to tokens or pairs."
-- useful_tokens = "True tokens that the step's linear layers were asked about."
-- computed_tokens = "Tokens they computed, padding included."
-- useful_pairs = "Query-key pairs of true tokens under the mask; one head of one layer."
-- computed_pairs = "Pairs that the implementation that ran computed; null where it is not known."
-- implementation = "Attention implementation that ran; null where it is not known."
--
-- [[notes]]
-- status = "exact"
-- text = "{0:,} of {1:,} tokens are padding: {2:.2f} %."
-- sql = '''
-- select
-- sum(computed_tokens - useful_tokens)::bigint,
-- sum(computed_tokens)::bigint as computed,
-- 100.0 * sum(computed_tokens - useful_tokens) / computed
-- from batch
-- having computed > 0
-- '''
--
-- [[notes]]
-- status = "exact"
-- text = "{0:,} of {1:,} attention pairs that {3} computed are padding or masked: {2:.2f} %."
-- sql = '''
-- select
-- sum(computed_pairs - useful_pairs)::bigint,
-- sum(computed_pairs)::bigint as computed,
-- 100.0 * sum(computed_pairs - useful_pairs) / computed,
-- string_agg(distinct implementation, ', ')
-- from batch
-- where pairs_status = 'exact'
-- having computed > 0
-- '''
--
-- [[notes]]
-- status = "estimated"
-- text = """{0:,} of {1:,} attention pairs that {3} computed are padding: {2:.2f} %. It skips
-- masked
-- pairs by the tile, so it computed somewhat more."""
-- sql = '''
-- select
-- sum(computed_pairs - useful_pairs)::bigint,
-- sum(computed_pairs)::bigint as computed,
-- 100.0 * sum(computed_pairs - useful_pairs) / computed,
-- string_agg(distinct implementation, ', ')
-- from batch
-- where pairs_status = 'estimated'
-- having computed > 0
-- '''
--
-- [[notes]]
-- status = "not_derivable"
-- text = """Attention pairs of {0} of the steps: the ops carry no shapes, their calls differ, or
-- the mask is of an unknown kind. There, waste_ns of all leaves attention out: a lower bound."""
-- sql = '''
-- select count(*) as steps from batch where pairs_status = 'not_derivable' having steps > 0
-- '''
--
-- [[notes]]
-- status = "estimated"
-- text = "waste_ns takes time to be in proportion to tokens or pairs."
-- sql = "select 1 from batch limit 1"
-- ///
with
    grows_with(role, basis) as (
        values
            ('attention.scores', 'pairs'),
            ('attention.softmax', 'pairs'),
            ('attention.values', 'pairs'),
            ('attention.core', 'pairs'),
            ('attention.mask', 'pairs'),
            ('attention.qkv_proj', 'tokens'),
            ('attention.qk_norm', 'tokens'),
            ('attention.rope', 'tokens'),
            ('attention.kv_cache', 'tokens'),
            ('attention.layout', 'tokens'),
            ('attention.out_proj', 'tokens'),
            ('attention.other', 'tokens'),
            ('mlp', 'tokens'),
            ('moe', 'tokens'),
            ('norm', 'tokens'),
            ('residual', 'tokens'),
            ('embedding', 'tokens'),
            ('lm_head', 'tokens'),
            ('loss', 'tokens'),
            ('quant', 'tokens'),
            ('optimizer', 'none'),
            ('comm', 'none')
    ),
    in_step as (
        select step_id, role, sum(dur_ns)::bigint as work_ns from work group by step_id, role
    ),
    by_role as (
        select
            b.*,
            i.role,
            i.work_ns,
            g.basis,
            case
                when g.basis = 'tokens'
                then 1 - b.useful_tokens / nullif(b.computed_tokens, 0)
                when g.basis = 'pairs'
                then 1 - b.useful_pairs / nullif(b.computed_pairs, 0)
                when g.basis = 'none'
                then 0
            end as waste_frac
        from batch as b
        join in_step as i using (step_id)
        left join grows_with as g using (role)
    ),
    with_whole as (
        select r.*, waste_frac * work_ns as waste_ns, false as is_whole
        from by_role as r
        union all by name
        select
            step_id,
            any_value(useful_tokens) as useful_tokens,
            any_value(computed_tokens) as computed_tokens,
            any_value(useful_pairs) as useful_pairs,
            any_value(computed_pairs) as computed_pairs,
            any_value(implementation) as implementation,
            'all' as role,
            sum(work_ns)::bigint as work_ns,
            sum(waste_frac * work_ns) / nullif(sum(work_ns), 0) as waste_frac,
            sum(waste_frac * work_ns) as waste_ns,
            true as is_whole
        from by_role
        group by step_id
    )
select
    s.number as step,
    w.role,
    w.work_ns,
    w.basis,
    w.waste_frac,
    w.waste_ns,
    w.useful_tokens,
    w.computed_tokens,
    w.useful_pairs,
    w.computed_pairs,
    w.implementation
from with_whole as w
join step as s using (step_id)
order by s.start_ns, w.is_whole desc, w.waste_ns desc nulls last, w.role
