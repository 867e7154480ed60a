-- /// query
-- summary = "How many kernels does each module launch, and which pointwise ones could be fused?"
-- requires = ["kernel.dur_ns"]
--
-- [params]
-- top = { default = 20, doc = "Rows to return, 0 for all." }
--
-- [params.by]
-- default = "module,phase,ops"
-- choices = ["module", "phase", "ops"]
-- doc = "What to group by, separated by commas: module, phase, ops (the chain of ops)."
--
-- [columns]
-- module_class = """Class of the innermost nn.Module around the op; of a chain shown by its ops,
-- around its first op; null where none was recorded."""
-- phase = "forward, backward, recompute, optimizer or other; null unless grouped by."
-- ops = """Ops of a chain: pointwise kernels that ran one after another on a stream, with equally
-- many elements, within one step and phase; null for kernels in no chain. A kernel without op is
-- named by its family."""
-- kernels = "Pieces of device work: kernels, copies and sets."
-- chains = "Chains that begin among them."
-- chain_kernels = "Kernels of the longest chain; null where there is none."
-- step_kernels = """Kernels of one step: the median over the steps they ran in; null outside of
-- steps."""
-- module_kernels = """Kernels of one module of the class in one step, modules inside it included:
-- the median; null unless grouped by module. A module that several call counts in the first."""
-- total_ns = "Summed duration; concurrent streams count twice."
-- share_frac = "total_ns over that of all kernels."
-- stake_ns = """Time of its kernels that fusing chains might save, the longest of each chain left
-- out: estimated, an upper bound; 0 where there is no chain."""
-- stake_frac = "stake_ns over the time of all kernels."
-- stake_status = "estimated; null where there is nothing to save."
--
-- [[notes]]
-- status = "estimated"
-- text = """stake_ns: a fused chain takes as long as its longest kernel, one pass of reading and
-- writing instead of several. An upper bound: whether a kernel reads what the one before wrote is
-- not in the trace, and inputs that only the others read must still be read. Host time is not
-- counted."""
-- sql = "select 1 from kernel limit 1"
--
-- [[notes]]
-- status = "info"
-- text = """No nn.Module rows were recorded: -p by=ops groups by chains alone. Record with
-- with_stack=True."""
-- sql = "select 1 where not exists (select 1 from module)"
--
-- [[notes]]
-- status = "info"
-- text = """No shapes were recorded: that kernels of a chain have equally many elements is taken
-- from their grids. Record with record_shapes=True."""
-- sql = "select 1 where not exists (select 1 from op where input_dims is not null)"
-- ///
with recursive
    pointwise(family) as (
        values
            ('aten_elementwise'),
            ('aten_activation'),
            ('aten_dropout'),
            ('aten_mask'),
            ('aten_copy'),
            ('activation'),
            ('inductor_pointwise'),
            ('inductor_activation'),
            ('inductor_copy'),
            ('inductor_quant')
    ),
    pieces as materialized(
        select
            k.kernel_id,
            k.trace_id,
            k.device,
            k.stream,
            k.start_ns,
            k.dur_ns,
            k.grid,
            k.op_id,
            k.op_name,
            k.family,
            k.module_id,
            k.step_id,
            k.phase,
            k.kind = 'kernel' and k.family in (from pointwise) as is_pointwise
        from kernel as k
    ),
    dims_of_op as (
        select op_id, input_dims
        from op
        where input_dims is not null and op_id in (select op_id from pieces where is_pointwise)
    ),
    inputs as (
        select input_dims, unnest(try_cast(input_dims as json[])) as dims
        from (select distinct input_dims from dims_of_op)
    ),
    elements as (
        select input_dims, max(list_product(try_cast(dims as bigint[])))::bigint as elements
        from inputs
        where dims::varchar <> '[]'
        group by input_dims
    ),
    keyed as (
        select
            p.kernel_id,
            p.trace_id,
            p.device,
            p.stream,
            p.start_ns,
            case
                when p.is_pointwise
                then
                    coalesce(e.elements::varchar, p.grid)
                    || ' '
                    || p.phase
                    || coalesce(' ' || p.step_id, '')
            end as key
        from pieces as p
        left join dims_of_op as d on d.op_id = p.op_id and p.is_pointwise
        left join elements as e on e.input_dims = d.input_dims
    ),
    beside as (
        select
            *,
            coalesce(key = lag(key) over stream_order, false) as is_joined,
            coalesce(key = lead(key) over stream_order, false) as is_followed
        from keyed
        window stream_order as (partition by trace_id, device, stream order by start_ns, kernel_id)
    ),
    linked as materialized(
        select
            kernel_id,
            last_value(case when not is_joined then kernel_id end ignore nulls) over (
                partition by trace_id, device, stream
                order by start_ns, kernel_id
                rows unbounded preceding
            ) as first_id
        from beside
        where is_joined or is_followed
    ),
    chains as (
        select
            l.first_id,
            count(*) as kernels,
            first(p.module_id order by p.start_ns, p.kernel_id) as module_id,
            list(coalesce(p.op_name, p.family, '?') order by p.start_ns, p.kernel_id) as names,
            first(p.kernel_id order by p.dur_ns desc, p.start_ns, p.kernel_id) as longest_id
        from linked as l
        join pieces as p on p.kernel_id = l.kernel_id
        group by l.first_id
    ),
    told as (
        select
            case
                when list_contains(string_split($by, ','), 'module') then m.class_name
            end as module_class,
            case when list_contains(string_split($by, ','), 'phase') then p.phase end as phase,
            case
                when list_contains(string_split($by, ','), 'ops')
                then
                    array_to_string(c.names[:8], ' > ')
                    || case when c.kernels > 8 then ' > ... of ' || c.kernels else '' end
            end as ops,
            p.step_id,
            p.dur_ns,
            case when p.kernel_id = c.first_id then c.kernels end as chain_kernels,
            case when p.kernel_id <> c.longest_id then p.dur_ns else 0 end as stake_ns
        from pieces as p
        left join linked as l on l.kernel_id = p.kernel_id
        left join chains as c on c.first_id = l.first_id
        left join
            module as m
            on m.module_id = case
                when list_contains(string_split($by, ','), 'ops') and c.first_id is not null
                then c.module_id
                else p.module_id
            end
    ),
    by_step as (
        select
            module_class,
            phase,
            ops,
            step_id,
            count(*) as kernels,
            count(chain_kernels) as chains,
            max(chain_kernels) as chain_kernels,
            sum(dur_ns) as total_ns,
            sum(stake_ns) as stake_ns
        from told
        group by module_class, phase, ops, step_id
    ),
    inside as (
        select module_id, module_id as around
        from module
        union all
        select i.module_id, m.parent_id as around
        from inside as i
        join module as m on m.module_id = i.around
        where m.parent_id is not null
    ),
    of_module as (
        select i.around, p.step_id, count(*) as kernels
        from pieces as p
        join inside as i on i.module_id = p.module_id
        group by i.around, p.step_id
    ),
    of_class as (
        select m.class_name as module_class, quantile_disc(o.kernels, 0.5) as module_kernels
        from of_module as o
        join module as m on m.module_id = o.around
        group by m.class_name
    )
select
    s.module_class,
    s.phase,
    s.ops,
    sum(s.kernels)::bigint as kernels,
    sum(s.chains)::bigint as chains,
    max(s.chain_kernels) as chain_kernels,
    quantile_disc(s.kernels, 0.5) filter (where s.step_id is not null)::bigint as step_kernels,
    any_value(c.module_kernels) as module_kernels,
    sum(s.total_ns)::bigint as total_ns,
    sum(s.total_ns) / nullif(sum(sum(s.total_ns)) over (), 0) as share_frac,
    sum(s.stake_ns)::bigint as stake_ns,
    sum(s.stake_ns) / nullif(sum(sum(s.total_ns)) over (), 0) as stake_frac,
    case when sum(s.stake_ns) > 0 then 'estimated' end as stake_status
from by_step as s
left join of_class as c on c.module_class = s.module_class
group by s.module_class, s.phase, s.ops
order by
    stake_ns desc, total_ns desc, s.module_class nulls last, s.phase nulls last, s.ops nulls last
limit case when $top > 0 then $top else 9223372036854775807 end
