-- /// query
-- summary = "In which number format do kernels calculate, and does it fit their inputs?"
-- requires = ["kernel.dur_ns"]
--
-- [params]
-- all = { default = false, doc = "Show other work than products too: norms, copies." }
--
-- [columns]
-- finding = """How the format differs from the inputs': upcast (wider than all of them), downcast
-- (narrower than all), tf32 (fp32 inputs rounded to 10 bits), other format (bf16 for fp16); null
-- where it fits or can't be told."""
-- family = "Kernel family; null where the name is not known."
-- compute_dtype = """Format in which the kernels multiply, as their names tell; null for other
-- work than products, and where the name does not tell."""
-- input_dtypes = """Floating-point and int8 types of the op's tensors; null without record_shapes
-- or op."""
-- op = "Op of most of the time."
-- calls = "Pieces of work."
-- total_ns = "Summed duration; concurrent streams count twice."
-- share_frac = "total_ns over that of all device work."
-- kernel = "Kernel of most of the time."
--
-- [[notes]]
-- status = "info"
-- text = "Products whose names tell their format take {0:.1f} % of device time."
-- column = "told_percent"
--
-- [[notes]]
-- status = "not_derivable"
-- text = """No kernel's name tells a format: there is no product of a known family. A bundle that
-- an older tracekit loaded does not hold it: load the trace anew."""
-- sql = "select 1 where not exists (select 1 from kernel where compute_dtype is not null)"
--
-- [[notes]]
-- status = "not_derivable"
-- text = """No input types were recorded, so no format can be held against them:
-- record_shapes=True."""
-- sql = "select 1 where not exists (select 1 from op where input_types is not null)"
--
-- [[notes]]
-- status = "info"
-- text = """{0:.1f} % of device time multiplies in float32 without tensor cores, on a device that
-- has them for tf32. Where 10 bits are enough: torch.set_float32_matmul_precision('high')."""
-- sql = '''
-- select
-- 100.0 * sum(k.dur_ns) filter (where k.compute_dtype = 'float32' and k.family <> 'mem_efficient')
-- / sum(k.dur_ns) as share
-- from kernel as k
-- join trace as t using (trace_id)
-- where t.vendor = 'cuda' and try_cast(split_part(t.compute_capability, '.', 1) as int) >= 8
-- having share >= 1
-- '''
-- ///
with
    formats(type_name, dtype, width) as (
        values
            ('double', 'float64', 6),
            ('float', 'float32', 5),
            ('c10::BFloat16', 'bfloat16', 3),
            ('c10::Half', 'float16', 3),
            ('c10::Float8_e4m3fn', 'float8_e4m3fn', 2),
            ('c10::Float8_e4m3fnuz', 'float8_e4m3fnuz', 2),
            ('c10::Float8_e5m2', 'float8_e5m2', 2),
            ('c10::Float8_e5m2fnuz', 'float8_e5m2fnuz', 2),
            ('signed char', 'int8', 1)
    ),
    multiplied(compute_dtype, width) as (
        values
            ('float64', 6),
            ('float32', 5),
            ('tf32', 4),
            ('bfloat16', 3),
            ('float16', 3),
            ('float8', 2),
            ('int8', 1)
    ),
    pieces as (
        select k.family, k.compute_dtype, k.op_name, k.name, k.dur_ns, o.input_types, o.input_dims
        from kernel as k
        left join op as o using (op_id)
    ),
    grouped as materialized(
        select
            family,
            compute_dtype,
            op_name,
            name,
            input_types,
            input_dims,
            count(*) as calls,
            sum(dur_ns) as total_ns
        from pieces
        group by all
    ),
    signatures as (
        select distinct input_types, input_dims
        from grouped
        where input_types is not null and input_dims is not null
    ),
    tensors as (
        select
            input_types,
            input_dims,
            unnest(try_cast(input_types as varchar[])) as type_name,
            unnest(try_cast(input_dims as json[]))::varchar as dims
        from signatures
    ),
    inputs as (
        select
            t.input_types,
            t.input_dims,
            string_agg(distinct f.dtype, ', ' order by f.dtype) as input_dtypes,
            min(f.width) as narrowest,
            max(f.width) as widest
        from tensors as t
        join formats as f using (type_name)
        where t.dims <> '[]'
        group by t.input_types, t.input_dims
    ),
    known as (
        select
            g.*,
            i.input_dtypes,
            case
                when m.width > i.widest
                then 'upcast'
                when m.width < i.narrowest and g.compute_dtype = 'tf32'
                then 'tf32'
                when m.width < i.narrowest
                then 'downcast'
                when
                    m.width = 3
                    and not list_contains(string_split(i.input_dtypes, ', '), g.compute_dtype)
                then 'other format'
            end as finding
        from grouped as g
        left join inputs as i on i.input_types = g.input_types and i.input_dims = g.input_dims
        left join multiplied as m on m.compute_dtype = g.compute_dtype
    ),
    by_op as (
        select finding, family, compute_dtype, input_dtypes, op_name, sum(total_ns) as ns
        from known
        group by all
    ),
    main_op as (
        select
            finding,
            family,
            compute_dtype,
            input_dtypes,
            first(op_name order by ns desc, op_name) as op
        from by_op
        group by all
    )
select
    k.finding,
    k.family,
    k.compute_dtype,
    k.input_dtypes,
    any_value(o.op) as op,
    sum(k.calls)::bigint as calls,
    sum(k.total_ns)::bigint as total_ns,
    sum(k.total_ns) / nullif((select sum(total_ns) from grouped), 0) as share_frac,
    first(k.name order by k.total_ns desc, k.name) as kernel,
    (
        select
            100.0
            * sum(total_ns) filter (where compute_dtype is not null)
            / nullif(sum(total_ns), 0)
        from grouped
    ) as told_percent
from known as k
join
    main_op as o
    on o.finding is not distinct from k.finding
    and o.family is not distinct from k.family
    and o.compute_dtype is not distinct from k.compute_dtype
    and o.input_dtypes is not distinct from k.input_dtypes
where
    $all
    or k.compute_dtype is not null
    or regexp_matches(
        k.family, 'gemm|gemv|conv|attention|mla|sdpa|fmha|moe|mem_eff|splitk|aotriton|muon'
    )
group by k.finding, k.family, k.compute_dtype, k.input_dtypes
order by
    k.finding is null,
    total_ns desc,
    k.finding,
    k.family nulls last,
    k.compute_dtype nulls last,
    k.input_dtypes nulls last
