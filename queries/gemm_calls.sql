-- /// query
-- summary = "Which matrix products take the time, by their sizes, and how well do they run?"
-- requires = ["work.dur_ns"]
--
-- [params]
-- top = { default = 30, doc = "Rows to return, 0 for all." }
--
-- [columns]
-- m = "Rows of the first factor; of a linear layer the tokens. Null where shapes do not tell."
-- n = "Columns of the second factor; of a linear layer its outputs."
-- k = "Length of the sums; of a linear layer its inputs."
-- batch = "Products in one call."
-- dtype = """Number format in which it multiplies, by the kernel's name, else by the inputs; null
-- where neither tells."""
-- work_ns = """Summed duration of their device work, copies and sets included; host time where no
-- device was recorded."""
-- achieved_flops_per_s = "Operations over work_ns."
-- peak_frac = "achieved_flops_per_s over peak_flops_per_s."
-- share_frac = """work_ns over that of all work."""
-- bound = """compute, memory, latency, launch or neither, by the rule in the notes; null without
-- peaks."""
-- calls = "Calls: ops; kernels where no op tells of them or their op has no sizes."
-- mean_ns = "work_ns of one call."
-- call_flops = "Operations of one call: 2 batch m n k."
-- flops_status = "exact, estimated or not_derivable."
-- call_bytes = "Bytes of factors, result and what is added, each once."
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
-- text = """{0[share]:.1f} % of the time of products has no sizes, and rates leave it out:
-- {0[kinds]}."""
-- column = "unsized"
--
-- [[notes]]
-- status = "info"
-- text = """{0:.1f} % of all work is fused attention and convolutions, whose products are no
-- rows."""
-- sql = '''
-- select
-- 100.0 * sum(dur_ns) filter (where role in ('attention.core', 'conv')) /
-- nullif(sum(dur_ns), 0) as share
-- from work
-- having share >= 0.05
-- '''
--
-- [[notes]]
-- status = "info"
-- text = "{0} rows in all; -p top=0 shows every one."
-- column = "all_rows"
-- ///
with
    calls as materialized(from roof_call where kind = 'gemm'),
    sums as (
        select
            coalesce(family, kernel) as family,
            name as op_name,
            reason,
            flops is null as is_unsized,
            sum(work_ns) as work_ns
        from calls
        group by all
    ),
    placed as (
        select
            *,
            row_number() over (
                partition by is_unsized order by work_ns desc, family, op_name
            ) as place
        from sums
    ),
    unsized as (
        select
            100.0 * sum(work_ns) filter (where is_unsized) / nullif(sum(work_ns), 0) as share,
            string_agg(
                family
                || coalesce(' in ' || op_name, '')
                || printf(' %.2f ms (', work_ns / 1e6)
                || reason
                || ')',
                '; '
                order by place
            ) filter (where is_unsized and place <= 5) || case
                when max(place) filter (where is_unsized) > 5
                then '; ' || (max(place) filter (where is_unsized) - 5) || ' more'
                else ''
            end as kinds
        from placed
        having share > 0
    )
select
    m,
    n,
    k,
    batch,
    dtype,
    work_ns,
    achieved_flops_per_s,
    peak_frac,
    work_ns / nullif((select sum(dur_ns) from work), 0) as share_frac,
    bound,
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
    case when $top > 0 and count(*) over () > $top then count(*) over () end as all_rows,
    (select u from unsized as u) as unsized
from roof_signature(false, rows_of := 'calls')
order by
    suspicion is null,
    work_ns desc nulls last,
    m nulls last,
    n nulls last,
    k nulls last,
    batch nulls last,
    dtype nulls last,
    peak_flops_per_s nulls last,
    peak_bytes_per_s nulls last
limit case when $top > 0 then $top else 9223372036854775807 end
