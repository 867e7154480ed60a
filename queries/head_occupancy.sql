-- /// query
-- summary = "Do the heads and tiles of attention fill the multiprocessors?"
-- requires = ["kernel.grid"]
--
-- [params]
-- top = { default = 30, doc = "Rows to return, 0 for all." }
--
-- [columns]
-- family = "Kernel family."
-- sizes = """Sequences, query heads/key heads, queries, keys and head dim of the call; null for
-- a kernel of no call, or without shapes."""
-- total_ns = "Their summed duration."
-- sm_frac = "Share of the multiprocessors that get a block at all, at most 1."
-- occupancy_frac = """Threads resident over what the device could hold, recomputed from grid,
-- block, registers and shared memory: what the profiler means by achieved occupancy."""
-- wave_frac = """Share of the waves' places that hold a block: 1 less what the last wave leaves
-- empty."""
-- waves = "Times that the resident blocks of the whole device are filled, the last one in part."
-- limits = """What keeps it from holding more: threads, blocks, registers, shared memory; several
-- where they bind alike."""
-- phase = "forward, backward, recompute, optimizer or other."
-- launches = "Kernels launched so."
-- heads = "Sequences times query heads of the call: what there is to share out beside tiles."
-- grid = "Blocks in x, y, z."
-- blocks = "Blocks of one launch."
-- head_blocks = """blocks over heads: tiles of one head. Null where they do not divide: a
-- persistent or a split kernel shares out its work itself."""
-- sms = "Multiprocessors (compute units) of the device."
-- threads = "Threads of a block."
-- registers = "Registers a thread; null where they were not recorded."
-- shared_bytes = "Shared memory a block; null where it was not recorded."
-- resident_blocks = "Blocks that a multiprocessor holds at once, recomputed."
-- tail_frac = "How full the last wave is."
-- recorded_frac = """What the profiler recorded; null where it recorded nothing, or 0 above 48 KiB
-- of shared memory, which means unknown."""
-- occupancy_status = "estimated (clusters and carve-out are not in a trace) or not_derivable."
-- reason = "Why it is not derivable; null where it is."
-- kernel = "Kernel of most of the time."
--
-- [[notes]]
-- status = "estimated"
-- text = """Waves take blocks as equally long and alone on the device. A causal mask makes them
-- differ, a grid for packed sequences has room for the longest of each and leaves blocks without
-- work, and a persistent kernel (as many blocks as multiprocessors, or a multiple) takes its tiles
-- one after another: of these tail_frac tells little."""
-- sql = "select 1 from residency where resident_blocks is not null limit 1"
--
-- [[notes]]
-- status = "info"
-- text = """Low occupancy is no fault of a fused attention: it holds its tiles in registers and
-- shared memory. Few blocks (sm_frac below 1) and an empty tail are."""
-- sql = "select 1 from residency where resident_blocks is not null limit 1"
--
-- [[notes]]
-- status = "not_derivable"
-- text = """Neither registers nor shared memory of kernels were recorded, as on ROCm: how many
-- blocks are resident is not known."""
-- sql = "select 1 where not exists (select 1 from kernel where registers is not null)"
--
-- [[notes]]
-- status = "info"
-- text = "{0} kernels of attention have no grid, as those that graphs replay on ROCm: left out."
-- sql = '''
-- select count(*) as n from kernel
-- where role = 'attention.core' and kind = 'kernel' and grid is null having n > 0
-- '''
-- ///
with
    launched as (
        select
            k.family,
            k.phase,
            k.name,
            k.dur_ns,
            a.b * a.hq as heads,
            'B='
            || a.b
            || ' H='
            || a.hq
            || '/'
            || a.hkv
            || ' Q='
            || a.nq
            || ' K='
            || a.nk
            || ' D='
            || a.d_qk as sizes,
            regexp_replace(k.grid, '\s', '', 'g') as grid,
            list_product(try_cast(k.grid as bigint[]))::bigint as blocks,
            t.sm_count,
            r.threads,
            k.registers,
            k.shared_memory_bytes,
            r.resident_blocks,
            r.limits,
            r.block_frac,
            case
                when k.occupancy_frac > 0 or k.shared_memory_bytes <= 49152 then k.occupancy_frac
            end as recorded_frac,
            coalesce(r.status, 'not_derivable') as status,
            coalesce(
                r.reason, case when t.sm_count is null then 'the device is not described' end
            ) as reason
        from kernel as k
        join trace as t on t.trace_id = k.trace_id
        left join
            residency as r
            on r.trace_id = k.trace_id
            and r.block = k.block
            and r.registers is not distinct from k.registers
            and r.shared_memory_bytes is not distinct from k.shared_memory_bytes
        left join attention_call as a on a.call_id = k.call_id
        where k.role = 'attention.core' and k.kind = 'kernel' and k.grid is not null
    ),
    signatures as (
        select
            family,
            phase,
            sizes,
            heads,
            grid,
            blocks,
            sm_count,
            threads,
            registers,
            shared_memory_bytes,
            resident_blocks,
            limits,
            block_frac,
            recorded_frac,
            status,
            reason,
            count(*) as launches,
            sum(dur_ns)::bigint as total_ns,
            first(name order by dur_ns desc, name) as kernel
        from launched
        group by all
    ),
    placed as (select *, resident_blocks * sm_count as places from signatures)
select
    family,
    sizes,
    total_ns,
    least(1.0, blocks / nullif(sm_count, 0)) as sm_frac,
    least(resident_blocks, blocks / nullif(sm_count, 0)) * block_frac as occupancy_frac,
    blocks / (ceil(blocks / nullif(places, 0)) * places) as wave_frac,
    ceil(blocks / nullif(places, 0))::bigint as waves,
    limits,
    phase,
    launches,
    heads,
    grid,
    blocks,
    case when blocks % nullif(heads, 0) = 0 then (blocks / heads)::bigint end as head_blocks,
    sm_count as sms,
    threads,
    registers,
    shared_memory_bytes as shared_bytes,
    resident_blocks,
    ((blocks - 1) % places + 1) / places as tail_frac,
    recorded_frac,
    status as occupancy_status,
    reason,
    kernel
from placed
order by
    total_ns desc,
    family nulls last,
    phase,
    sizes nulls last,
    grid,
    threads,
    registers nulls last,
    shared_bytes nulls last,
    recorded_frac nulls last,
    kernel
limit case when $top > 0 then $top else 9223372036854775807 end
