-- Views over those of views.sql: calls and their signatures against what a device can do.

create view roof_call as
with
    starved as materialized(
        select kernel_id, idle_ns
        from device_wait_of_any_step
        where launched_ns >= free_ns and idle_ns > 0
    ),
    gemms as materialized(from gemm_call),
    of_op as (
        select k.op_id, sum(s.idle_ns)::bigint as idle_ns, max(list_product(try_cast(k.grid as bigint[]))) as blocks
        from kernel as k
        left join starved as s on s.kernel_id = k.kernel_id
        where k.op_id in (select op_id from gemms)
        group by k.op_id
    ),
    of_work as (
        select k.kernel_id, s.idle_ns, list_product(try_cast(k.grid as bigint[])) as blocks
        from kernel as k
        left join starved as s on s.kernel_id = k.kernel_id
        where k.kernel_id in (select work_id from gemms)
    ),
    of_call as (
        select
            k.call_id,
            sum(s.idle_ns)::bigint as idle_ns,
            max(list_product(try_cast(k.grid as bigint[]))) as blocks,
            first(k.name order by k.dur_ns desc, k.name) as kernel,
            first(k.compute_dtype order by k.dur_ns desc, k.compute_dtype)
            filter (where k.compute_dtype is not null) as compute_dtype
        from kernel as k
        left join starved as s on s.kernel_id = k.kernel_id
        where k.call_id is not null
        group by k.call_id
    ),
    calls as (
        select
            'gemm' as kind,
            g.trace_id,
            null::bigint as call_id,
            g.op_name as name,
            g.phase,
            'B=' || g.batch || ' M=' || g.m || ' N=' || g.n || ' K=' || g.k as sizes,
            g.m,
            g.n,
            g.k,
            g.batch,
            g.dtype,
            g.dtype_source,
            g.kernel,
            g.family,
            g.pieces,
            g.work_ns,
            g.flops,
            g.flops_status,
            g.bytes,
            g.bytes_status,
            case when g.flops is not null then '2 B M N K' end as flop_count,
            coalesce(o.idle_ns, w.idle_ns) as idle_ns,
            coalesce(o.blocks, w.blocks) as blocks,
            g.reason
        from gemms as g
        left join of_op as o on o.op_id = g.op_id
        left join of_work as w on w.kernel_id = g.work_id
        union all by name
        select
            'attention' as kind,
            a.trace_id,
            a.call_id,
            concat_ws('/', a.implementation, a.backend) as name,
            a.phase,
            'B=' || a.b || ' H=' || a.hq || '/' || a.hkv || ' Q=' || a.nq || ' K=' || a.nk || ' D=' || a.d_qk
            || case when a.d_v <> a.d_qk then '/' || a.d_v else '' end as sizes,
            coalesce(c.compute_dtype, regexp_replace(a.dtype, '^float8_.*', 'float8')) as dtype,
            case when c.compute_dtype is not null then 'kernel' when a.dtype is not null then 'inputs' end
            as dtype_source,
            c.kernel,
            a.kernels as pieces,
            case when t.has_device then a.device_ns else a.host_ns end as work_ns,
            a.flops,
            a.flops_status,
            a.bytes,
            a.bytes_status,
            case
                when a.flops is null
                then null
                when a.is_varlen
                then 'packed'
                when a."window" is not null
                then 'window'
                when a.is_causal
                then 'causal'
                else 'full'
            end as flop_count,
            c.idle_ns,
            c.blocks,
            null::varchar as reason
        from attention_call as a
        join trace as t on t.trace_id = a.trace_id
        left join of_call as c on c.call_id = a.call_id
    ),
    timed as (
        select
            c.*,
            s.flops_per_s[c.dtype] as peak_flops_per_s,
            s.bytes_per_s as peak_bytes_per_s,
            1e9 * c.flops / s.flops_per_s[c.dtype] as compute_ns,
            1e9 * c.bytes / s.bytes_per_s as memory_ns,
            t.sm_count,
            s.cache_bytes,
            s.reason as spec_reason
        from calls as c
        join trace as t on t.trace_id = c.trace_id
        left join device_spec as s on s.trace_id = c.trace_id
    )
select
    kind,
    trace_id,
    call_id,
    name,
    phase,
    sizes,
    m,
    n,
    k,
    batch,
    dtype,
    dtype_source,
    kernel,
    family,
    pieces,
    work_ns,
    idle_ns,
    flops,
    flops_status,
    flop_count,
    bytes,
    bytes_status,
    peak_flops_per_s,
    peak_bytes_per_s,
    compute_ns,
    memory_ns,
    case
        when idle_ns > work_ns
        then 'launch'
        when compute_ns is null or memory_ns is null or coalesce(work_ns, 0) <= 0
        then null
        when greatest(compute_ns, memory_ns) < 0.25 * work_ns
        then case when work_ns < 10000 * pieces or blocks < sm_count then 'latency' else 'neither' end
        when compute_ns >= memory_ns
        then 'compute'
        else 'memory'
    end as bound,
    case
        when compute_ns > work_ns
        then 'operations above peak'
        when memory_ns > work_ns and bytes <= cache_bytes
        then 'bytes above bandwidth: they fit in the cache'
        when memory_ns > work_ns
        then 'bytes above bandwidth'
    end as suspicion,
    case
        when flops is null
        then
            coalesce(
                reason,
                case
                    when sizes is null
                    then 'the shapes of its inputs are not known'
                    else 'its operations are not derivable'
                end
            )
        when peak_bytes_per_s is null
        then coalesce(spec_reason, 'the bandwidth is not known')
        when dtype is null
        then 'in which format it multiplies is not known'
        when peak_flops_per_s is null
        then 'no peak of ' || dtype || ' is known of this device'
        else reason
    end as reason
from timed
;

comment on view roof_call is 'Matrix products and attention calls against what their device can do: a call a row. A product of a naive attention is in both kinds.';
comment on column roof_call.kind is 'gemm or attention.';
comment on column roof_call.trace_id is 'Trace it belongs to.';
comment on column roof_call.call_id is 'The attention call; null for a product.';
comment on column roof_call.name is 'Op of a product; implementation and backend of an attention.';
comment on column roof_call.phase is 'forward, backward, recompute, optimizer or other.';
comment on column roof_call.sizes is 'Sizes as text: B batch, M, N, K of products; B sequences, H query heads/key heads, Q queries, K keys, D head dim of attention.';
comment on column roof_call.m is 'Of a product as gemm_call has it; null for attention, as n, k and batch.';
comment on column roof_call.n is 'Of a product.';
comment on column roof_call.k is 'Of a product.';
comment on column roof_call.batch is 'Of a product.';
comment on column roof_call.dtype is 'Number format in which it multiplies.';
comment on column roof_call.dtype_source is 'What tells it: kernel (the name of its longest product) or inputs (then fp32 may run as tf32).';
comment on column roof_call.kernel is 'Kernel of most of its time.';
comment on column roof_call.family is 'Family of that kernel, of a product; null for attention.';
comment on column roof_call.pieces is 'Pieces of work.';
comment on column roof_call.work_ns is 'Summed duration of its device work; host time where there is no device.';
comment on column roof_call.idle_ns is 'Time that the device stood idle before its kernels because they were not launched yet; null where it did not.';
comment on column roof_call.flops is 'Floating-point operations.';
comment on column roof_call.flops_status is 'exact, estimated or not_derivable.';
comment on column roof_call.flop_count is 'Which count: 2 B M N K; for attention the pairs of a causal mask, of a window, of packed sequences, or full (a dense mask does not lessen it).';
comment on column roof_call.bytes is 'Bytes that must move at least.';
comment on column roof_call.bytes_status is 'exact, estimated or not_derivable.';
comment on column roof_call.peak_flops_per_s is 'Dense peak of its device in that format.';
comment on column roof_call.peak_bytes_per_s is 'Peak bandwidth of its device''s memory.';
comment on column roof_call.compute_ns is 'Time its operations take at that peak.';
comment on column roof_call.memory_ns is 'Time its bytes take at that bandwidth.';
comment on column roof_call.bound is 'What limits it: launch (the device waited for its launches longer than it worked), latency (the peaks would allow a quarter of the time, and its kernels take under 10 µs each or have fewer blocks than the device has multiprocessors), neither (the peaks would allow a quarter of the time, and it is not latency: more bytes than must move, as in an unfused attention, or other instructions), else the longer of compute_ns and memory_ns; null without peaks.';
comment on column roof_call.suspicion is 'What can''t be: more than a peak; null where there is no such thing.';
comment on column roof_call.reason is 'Why there are no rates or no peaks; null where there are.';

create macro roof_signature(by_op, rows_of := 'roof_call') as table
with
    keyed as (
        select
            kind,
            case when by_op then name end as name,
            case when by_op then phase end as phase,
            sizes,
            m,
            n,
            k,
            batch,
            flop_count,
            dtype,
            kernel,
            work_ns,
            flops,
            flops_status,
            bytes,
            bytes_status,
            peak_flops_per_s,
            peak_bytes_per_s,
            bound,
            suspicion,
            reason
        from query_table(rows_of)
    ),
    alike as (
        select
            kind,
            name,
            phase,
            sizes,
            m,
            n,
            k,
            batch,
            flop_count,
            dtype,
            peak_flops_per_s,
            peak_bytes_per_s,
            bound,
            suspicion,
            reason,
            count(*) as calls,
            count(work_ns) as timed,
            count(flops) as counted,
            count(bytes) as sized,
            sum(work_ns) as work_ns,
            max(work_ns) as longest_ns,
            sum(flops) as flops,
            max(flops_status) as flops_status,
            sum(bytes) as bytes,
            max(bytes_status) as bytes_status,
            first(kernel order by work_ns desc, kernel) as kernel
        from keyed
        group by all
    ),
    bounded as (
        select
            *,
            case
                when bound is not null
                then sum(work_ns) over (partition by kind, name, phase, sizes, flop_count, dtype, bound)
            end as bound_ns
        from alike
    ),
    signatures as (
        select
            kind,
            name,
            phase,
            sizes,
            m,
            n,
            k,
            batch,
            flop_count,
            dtype,
            peak_flops_per_s,
            peak_bytes_per_s,
            sum(calls)::bigint as calls,
            sum(work_ns)::bigint as work_ns,
            sum(work_ns) / nullif(sum(timed), 0) as mean_ns,
            round(sum(flops) / nullif(sum(counted), 0))::bigint as call_flops,
            max(flops_status) as flops_status,
            round(sum(bytes) / nullif(sum(sized), 0))::bigint as call_bytes,
            max(bytes_status) as bytes_status,
            sum(flops) as flops,
            sum(bytes) as bytes,
            first(bound order by bound_ns desc nulls last, bound) as bound,
            nullif(array_to_string(list_sort(list_distinct(list(suspicion))), '; '), '') as suspicion,
            nullif(array_to_string(list_sort(list_distinct(list(reason))), '; '), '') as reason,
            first(kernel order by longest_ns desc, kernel) as kernel
        from bounded
        group by all
    ),
    held as (
        select
            *,
            1e9 * flops / peak_flops_per_s as compute_ns,
            1e9 * bytes / peak_bytes_per_s as memory_ns
        from signatures
    )
select
    kind,
    name,
    phase,
    sizes,
    m,
    n,
    k,
    batch,
    flop_count,
    dtype,
    calls,
    work_ns,
    mean_ns,
    call_flops,
    flops_status,
    call_bytes,
    bytes_status,
    flops / nullif(bytes, 0) as intensity_flops_per_byte,
    1e9 * flops / nullif(work_ns, 0) as achieved_flops_per_s,
    1e9 * bytes / nullif(work_ns, 0) as achieved_bytes_per_s,
    peak_flops_per_s,
    peak_bytes_per_s,
    compute_ns / nullif(work_ns, 0) as peak_frac,
    memory_ns / nullif(work_ns, 0) as bandwidth_frac,
    case
        when compute_ns is not null and memory_ns is not null
        then greatest(compute_ns, memory_ns) / nullif(work_ns, 0)
    end as roof_frac,
    bound,
    suspicion,
    reason,
    kernel
from held
;

comment on macro table roof_signature is 'roof_call by signature: calls of the same sizes, format and peaks a row, by their op and phase too if by_op, with their rates; rows_of names the view or CTE that holds the rows of roof_call. Columns as in roof_call, and those that gemm_calls explains, but its share_frac.';
