-- /// query
-- summary = "What does communication between ranks cost, and how fast is it?"
-- requires = ["collective.start_ns"]
--
-- [columns]
-- rank = "Rank of the trace; null where it does not say."
-- group_name = "Process group; null where the trace does not say."
-- ranks = "Ranks in the group; null where the trace does not say."
-- collective = """all_reduce, all_gather, reduce_scatter, broadcast, ...; null where it is not
-- known."""
-- measured_on = "device, or host where it left no device work: its times are then the op's."
-- calls = "Collectives."
-- bytes = "Bytes of their messages, of those where it is known; null where of none."
-- time_ns = """From the first to the last device work of each, waiting for other ranks included;
-- those that run side by side count twice."""
-- exposed_ns = """The part of time_ns during which no compute kernel ran on the device (kernels
-- that communicate, copies and sets are not compute); null where measured on the host. With
-- --phase, compute of that phase."""
-- exposed_frac = "exposed_ns over time_ns."
-- algorithm_bytes_per_s = """Message size over time. A lower bound of what the links do, since
-- the time holds the wait for other ranks."""
-- bus_bytes_per_s = """Algorithm bandwidth times the factor of nccl-tests: 2(n-1)/n for
-- all_reduce, (n-1)/n for all_gather, reduce_scatter and all_to_all, 1 for broadcast, reduce,
-- send and recv. It is comparable with a link's speed, unless the switch reduces (NVLink
-- SHARP)."""
-- best_bus_bytes_per_s = "That of the fastest call, which waited least."
-- bandwidth_status = "estimated; not_derivable where either bandwidth is null."
-- bandwidth_reason = "What is not known; null where nothing is missing."
--
-- [[notes]]
-- status = "estimated"
-- text = """Bandwidths take all of a collective's time to be transfer, waiting for other ranks
-- too: the links are at least that fast."""
-- sql = "select 1 from collective where kernel_id is not null and bytes > 0 limit 1"
--
-- [[notes]]
-- status = "info"
-- text = "{0} collectives left no device work: nothing tells how long they took on the wire."
-- sql = "select count(*) as n from collective where kernel_id is null having n > 0"
-- ///
with
    compute as materialized(
        select trace_id, device, start_ns, start_ns + dur_ns as end_ns
        from kernel_of_any_step
        where
            kind = 'kernel'
            and dur_ns > 0
            and coalesce(
                family not in ('nccl', 'rccl', 'symmetric_memory', 'custom_all_reduce', 'deep_ep'),
                true
            )
            and kernel_id not in (select kernel_id from collective where kernel_id is not null)
    ),
    reached as (
        select
            *,
            max(end_ns) over (
                partition by trace_id, device
                order by start_ns, end_ns
                rows between unbounded preceding and 1 preceding
            ) as before_ns
        from compute
    ),
    stretch as (
        select
            trace_id,
            device,
            greatest(start_ns, coalesce(before_ns, start_ns)) as start_ns,
            end_ns - greatest(start_ns, coalesce(before_ns, start_ns)) as dur_ns
        from reached
        where end_ns > coalesce(before_ns, start_ns)
    ),
    computed as (
        select
            *,
            sum(dur_ns) over (
                partition by trace_id, device
                order by start_ns
                rows between unbounded preceding and current row
            )
            - dur_ns as until_ns
        from stretch
    ),
    asked as materialized(
        select
            c.*,
            k.device,
            case when c.kernel_id is null then 'host' else 'device' end as measured_on
        from collective as c
        left join kernel_of_any_step as k on k.kernel_id = c.kernel_id
    ),
    moment as (
        select trace_id, device, start_ns as time_ns, collective_id, -1 as sign
        from asked
        where measured_on = 'device'
        union all by name
        select trace_id, device, start_ns + dur_ns as time_ns, collective_id, 1 as sign
        from asked
        where measured_on = 'device'
    ),
    computed_until as (
        select
            m.collective_id,
            m.sign,
            coalesce(c.until_ns + least(c.start_ns + c.dur_ns, m.time_ns) - c.start_ns, 0) as ns
        from moment as m
        asof left join
            computed as c
            on c.trace_id = m.trace_id
            and coalesce(c.device, -1) = coalesce(m.device, -1)
            and c.start_ns <= m.time_ns
    ),
    hidden as (
        select collective_id, sum(sign * ns)::bigint as hidden_ns
        from computed_until
        group by collective_id
    ),
    timed as (
        select
            a.*,
            a.dur_ns - h.hidden_ns as exposed_ns,
            case
                when a.kernel_id is not null and a.bytes > 0 and a.dur_ns > 0 then a.bytes
            end as timed_bytes
        from asked as a
        left join hidden as h on h.collective_id = a.collective_id
    ),
    grouped as (
        select
            trace_id,
            group_name,
            group_size,
            name,
            measured_on,
            count(*) as calls,
            sum(bytes)::bigint as bytes,
            sum(dur_ns)::bigint as time_ns,
            sum(exposed_ns)::bigint as exposed_ns,
            count(*) filter (where timed_bytes is null) as calls_without,
            sum(timed_bytes) / sum(dur_ns) filter (where timed_bytes is not null) as rate,
            max(timed_bytes / dur_ns) as best_rate,
            any_value(bus_factor) as bus_factor
        from timed
        group by trace_id, group_name, group_size, name, measured_on
    )
select
    t.rank,
    g.group_name,
    g.group_size as ranks,
    g.name as collective,
    g.measured_on,
    g.calls,
    g.bytes,
    g.time_ns,
    g.exposed_ns,
    g.exposed_ns / nullif(g.time_ns, 0) as exposed_frac,
    1e9 * g.rate as algorithm_bytes_per_s,
    1e9 * g.rate * g.bus_factor as bus_bytes_per_s,
    1e9 * g.best_rate * g.bus_factor as best_bus_bytes_per_s,
    case
        when g.rate is null or g.bus_factor is null then 'not_derivable' else 'estimated'
    end as bandwidth_status,
    case
        when g.measured_on = 'host'
        then 'no device work'
        when g.rate is null
        then 'message size unknown'
        when g.bus_factor is null and g.group_size is null
        then 'bus: size of the group unknown'
        when g.bus_factor is null
        then 'bus: no factor for this collective'
        when g.calls_without > 0
        then 'message size of ' || g.calls_without || ' calls unknown'
    end as bandwidth_reason
from grouped as g
join trace as t using (trace_id)
order by
    t.rank nulls first,
    g.trace_id,
    g.time_ns desc,
    g.group_name nulls last,
    ranks nulls last,
    collective nulls last,
    g.measured_on
