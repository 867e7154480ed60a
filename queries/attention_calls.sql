-- /// query
-- summary = "Which attention ran, on what shapes, how long and at what rate?"
-- requires = ["trace.trace_id"]
--
-- [params]
-- top = { default = 40, doc = "Rows to return, 0 for all." }
--
-- [columns]
-- implementation = """What was called: sdpa, flash_attn, naive, ...; generic for an op that is
-- not known."""
-- backend = "SDPA backend that ran; of other implementations the family of their kernel."
-- phase = "forward, backward or recompute."
-- b = "Sequences."
-- hq = "Query heads."
-- hkv = "Key and value heads."
-- nq = "Queries a sequence; the longest one's where sequences are packed."
-- nk = "Keys a sequence; the longest one's where sequences are packed."
-- d_qk = "Head dim of queries and keys."
-- total_ns = """Their device time, concurrent streams counted twice; host time where no device
-- was recorded. Null where their device work is not in the trace."""
-- achieved_flops_per_s = "FLOPs over time, of the calls for which both are known."
-- share_frac = "total_ns over that of all attention calls."
-- calls = "Calls of this signature."
-- mean_ns = "Time a call."
-- achieved_bytes_per_s = "Bytes over time, of the calls for which both are known."
-- mode = "train, prefill or decode; null where it is not known."
-- d_v = "Head dim of values."
-- dtype = "Element type the core ran in."
-- is_causal = "Whether a causal mask was asked for; null where that was not recorded."
-- window = "Sliding window in keys; null without one."
-- mask = "none, causal, window, boolean or additive; null where it is not known."
-- is_varlen = "Whether sequences were packed."
-- kernels = "Pieces of device work of all of them."
-- launches = "Launches of all of them; a graph's counts for each of its calls."
-- call_flops = "Floating-point operations a call, on the pairs that pairs_counted names."
-- flops_status = "exact, estimated (an upper bound) or not_derivable."
-- pairs_counted = """Which query-key pairs the FLOPs count: full, causal, window, or at most (a
-- bound: packed lengths or the content of a mask are not recorded)."""
-- call_bytes = """Bytes a call must move at least: inputs read once, outputs written once; the
-- scores that naive attention writes and reads do not count."""
-- bytes_status = "exact, estimated or not_derivable."
--
-- [[notes]]
-- status = "info"
-- text = """FLOPs count only pairs that no causal mask or window hides: 2 hq pairs (d_qk + d_v)
-- forward, softmax left out. A full count would be up to twice that of a causal call."""
-- sql = "select 1 from attention_call where flops is not null limit 1"
--
-- [[notes]]
-- status = "estimated"
-- text = """FLOPs of {0:,} of {1:,} calls are an upper bound: the lengths of packed sequences,
-- or what a dense mask hides, are not recorded."""
-- sql = '''
-- select count(*) filter (where flops_status = 'estimated') as bounds, count(*)
-- from attention_call
-- having bounds > 0
-- '''
--
-- [[notes]]
-- status = "estimated"
-- text = """FLOPs of {0:,} packed calls are at most {1:.0f} % above the least that their
-- totals allow."""
-- sql = '''
-- select count(*) as packed, 100.0 * max(pairs / nullif(pairs_least, 0) - 1) as over
-- from attention_call
-- where flops_status = 'estimated' and is_varlen
-- having packed > 0
-- '''
--
-- [[notes]]
-- status = "not_derivable"
-- text = """FLOPs of {0:,} of {1:,} calls: shapes were not recorded, the mask is not known, or the
-- keys lie in a cache whose lengths are not in the trace."""
-- sql = '''
-- select count(*) filter (where flops is null) as unknown, count(*)
-- from attention_call
-- having unknown > 0
-- '''
--
-- [[notes]]
-- status = "estimated"
-- text = """{0:,} of {1:,} calls are told by their kernels alone, as in graphs: how kernels fall
-- into calls is read from names and order."""
-- sql = '''
-- select count(*) filter (where source = 'kernel') as alone, count(*)
-- from attention_call
-- having alone > 0
-- '''
--
-- [[notes]]
-- status = "estimated"
-- text = """{0:,} of {1:,} calls are replayed from a graph and have the sizes of its capture, by
-- position: a batch smaller than the captured one is padded to it."""
-- sql = '''
-- select count(*) filter (where source = 'capture') as captured, count(*)
-- from attention_call
-- having captured > 0
-- '''
--
-- [[notes]]
-- status = "warning"
-- text = "{0:,} of {1:,} calls have no device work in the trace, so no time and no rate."
-- sql = '''
-- select count(*) filter (where c.kernels = 0) as without, count(*)
-- from attention_call as c
-- join trace as t using (trace_id)
-- where t.has_device
-- having without > 0
-- '''
-- ///
with
    timed as (
        select
            c.*,
            case when t.has_device then c.device_ns else c.host_ns end as spent_ns,
            case
                when c.flops is null
                then null
                when c.flops_status = 'estimated'
                then 'at most'
                when c.window is not null
                then 'window'
                when c.is_causal
                then 'causal'
                else 'full'
            end as pairs_counted
        from attention_call as c
        join trace as t using (trace_id)
    )
select
    implementation,
    backend,
    phase,
    b,
    hq,
    hkv,
    nq,
    nk,
    d_qk,
    sum(spent_ns)::bigint as total_ns,
    1e9
    * sum(flops) filter (where spent_ns > 0)
    / nullif(sum(spent_ns) filter (where flops is not null), 0) as achieved_flops_per_s,
    sum(spent_ns) / nullif(sum(sum(spent_ns)) over (), 0) as share_frac,
    count(*) as calls,
    avg(spent_ns) as mean_ns,
    1e9
    * sum(bytes) filter (where spent_ns > 0)
    / nullif(sum(spent_ns) filter (where bytes is not null), 0) as achieved_bytes_per_s,
    mode,
    d_v,
    dtype,
    is_causal,
    "window",
    mask_kind as mask,
    is_varlen,
    sum(kernels)::bigint as kernels,
    sum(launches)::bigint as launches,
    avg(flops) as call_flops,
    flops_status,
    pairs_counted,
    avg(bytes) as call_bytes,
    bytes_status
from timed
group by all
order by
    total_ns desc nulls last,
    calls desc,
    implementation nulls last,
    backend nulls last,
    phase,
    mode nulls last,
    b nulls last,
    hq nulls last,
    hkv nulls last,
    nq nulls last,
    nk nulls last,
    d_qk nulls last,
    d_v nulls last,
    dtype nulls last,
    is_causal nulls last,
    "window" nulls last,
    mask nulls last,
    is_varlen nulls last,
    flops_status,
    pairs_counted nulls last,
    bytes_status
limit case when $top > 0 then $top else 9223372036854775807 end
