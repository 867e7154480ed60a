-- /// query
-- summary = "How far are attention calls and matrix products from what the device can do?"
-- requires = ["work.dur_ns"]
--
-- [params]
-- top = { default = 30, doc = "Rows to return, 0 for all." }
--
-- [columns]
-- kind = "attention or gemm; a product inside a naive attention is in both."
-- name = "Op of a product; implementation and backend of an attention; null for a lone kernel."
-- sizes = """B batch, M, N, K of products; B sequences, H query heads/key heads, Q queries, K keys,
-- D head dim of attention; null where they are not known."""
-- work_ns = """Summed duration of their device work, copies and sets included; host time where no
-- device was recorded."""
-- achieved_flops_per_s = "Operations over work_ns."
-- peak_frac = "achieved_flops_per_s over peak_flops_per_s."
-- phase = "forward, backward, recompute, optimizer or other."
-- share_frac = """work_ns over that of all work: both kinds together may pass 1."""
-- bound = """compute, memory, latency, launch or neither, by the rule in the notes; null without
-- peaks."""
-- dtype = "Number format in which it multiplies."
-- flop_count = """Which operations are counted: 2 B M N K; of attention the pairs that a causal
-- mask, a window or packed sequences leave, or full (a dense mask does not lessen it). Softmax is
-- left out."""
-- calls = "Calls."
-- mean_ns = "work_ns of one call."
-- call_flops = "Operations of one call, the mean where calls of one row differ (windows)."
-- flops_status = "exact, estimated or not_derivable."
-- call_bytes = "Bytes that one call must move at least, the mean."
-- bytes_status = "exact, estimated or not_derivable."
-- intensity_flops_per_byte = "call_flops over call_bytes."
-- achieved_bytes_per_s = "Bytes over work_ns: at least so much was moved."
-- peak_flops_per_s = "Dense peak of the device in that format; null where it is not known."
-- bandwidth_frac = "achieved_bytes_per_s over the bandwidth of the device's memory."
-- roof_frac = """Time that the longer of both would take at its peak, over work_ns: 1 is as fast as
-- the device can."""
-- suspicion = """What can't be, shown first: more than a peak, by a wrong size, time or peak; null
-- where there is no such thing. Bytes that fit in the cache may come from it."""
-- reason = "Why there are no rates or no peaks, or what is estimated; null where nothing lacks."
-- kernel = "Kernel of most of the time."
--
-- [[notes]]
-- status = "info"
-- text = "Peaks: {0}."
-- sql = '''
-- select string_agg(line, '; ' order by line)
-- from (
-- select distinct
-- s.name || ', ' || s.reason || ', ' || (s.bytes_per_s / 1e9)::bigint || ' GB/s, TFLOP/s ' ||
-- list_aggregate(list_transform(list_sort(map_keys(s.flops_per_s)),
-- lambda f: f || ' ' || round(s.flops_per_s[f] / 1e12, 1)), 'string_agg', ', ')
-- || ' dense (' || s.source || ')' as line
-- from device_spec as s
-- where s.name is not null
-- )
-- '''
--
-- [[notes]]
-- status = "not_derivable"
-- text = """Peaks: {0}. Rates are there, shares of peak and most bounds are not; --device-spec FILE
-- gives peaks."""
-- sql = '''
-- select string_agg(distinct s.reason, '; ' order by s.reason)
-- from device_spec as s join trace as t using (trace_id)
-- where s.name is null and t.has_device
-- '''
--
-- [[notes]]
-- status = "not_derivable"
-- text = """No device was recorded: rates are those of the CPU, host time over its ops, and no peak
-- of it is known."""
-- sql = "select 1 from trace having not bool_or(has_device)"
--
-- [[notes]]
-- status = "info"
-- text = """Bound: launch, the device waited for the calls' launches longer than it then worked; if
-- the peaks would allow a quarter of the time or less, latency (kernels take under 10 µs each or
-- have fewer blocks than there are multiprocessors) or neither (more bytes than must move, as an
-- unfused attention has, or other instructions, such as softmax's); else compute or memory,
-- whichever takes longer at its peak. Of calls that differ, that of most of the time."""
-- sql = "select 1 from trace where has_device limit 1"
--
-- [[notes]]
-- status = "not_derivable"
-- text = "No attention call was found."
-- sql = "select 1 where not exists (select 1 from attention_call)"
--
-- [[notes]]
-- status = "info"
-- text = "{0} rows in all; -p top=0 shows every one."
-- column = "all_rows"
-- ///
select
    kind,
    name,
    sizes,
    work_ns,
    achieved_flops_per_s,
    peak_frac,
    phase,
    work_ns / nullif((select sum(dur_ns) from work), 0) as share_frac,
    bound,
    dtype,
    flop_count,
    calls,
    mean_ns,
    call_flops,
    flops_status,
    call_bytes,
    bytes_status,
    intensity_flops_per_byte,
    achieved_bytes_per_s,
    peak_flops_per_s,
    bandwidth_frac,
    roof_frac,
    suspicion,
    reason,
    kernel,
    case when $top > 0 and count(*) over () > $top then count(*) over () end as all_rows
from roof_signature(true)
order by
    suspicion is null,
    work_ns desc nulls last,
    kind nulls last,
    name nulls last,
    phase nulls last,
    sizes nulls last,
    flop_count nulls last,
    dtype nulls last,
    peak_flops_per_s nulls last,
    peak_bytes_per_s nulls last
limit case when $top > 0 then $top else 9223372036854775807 end
