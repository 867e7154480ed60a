-- /// query
-- summary = "What does moving data cost: contiguous, casts, repeats, clones and copies?"
-- requires = ["work.dur_ns"]
--
-- [params]
-- attention = { default = false, doc = "Only copies whose role is in attention." }
-- top = { default = 30, doc = "Rows to return, 0 for all." }
--
-- [columns]
-- role = "What the work does in the model."
-- movement = """make contiguous (a transposed or sliced view made real), cast, repeat (an expanded
-- view made real, as K and V for grouped heads), concatenate, pad, clone, transfer (between host
-- and device), compiled copy (as torch.compile made it) or copy."""
-- op = "Outermost op that does nothing but move: what the code asked for; null without op."
-- family = "Kernel family; null for an unknown name and on the CPU."
-- calls = "Pieces of work."
-- total_ns = "Summed duration; concurrent streams count twice."
-- attention_frac = """total_ns over the time of all attention; null where the role is outside of
-- it."""
-- share_frac = "total_ns over the time of all work."
-- moved_bytes = "Bytes written; null where they can't be derived."
-- moved_bytes_per_s = "moved_bytes over total_ns; reading them comes on top."
-- bytes_status = """exact (copies and sets by the driver), estimated (from the op's shape and
-- type) or not_derivable."""
--
-- [[notes]]
-- status = "exact"
-- text = "Copies take {0[share]:.1f} % of the time of attention: {0[ms]:.3f} ms."
-- column = "of_attention"
--
-- [[notes]]
-- status = "not_derivable"
-- text = """No shapes were recorded: bytes are known for the driver's copies alone, and casts,
-- repeats and transposes only by the ops around them. Record with record_shapes=True."""
-- sql = "select 1 where not exists (select 1 from op where input_dims is not null)"
--
-- [[notes]]
-- status = "info"
-- text = """No nn.Module rows were recorded: copies count to attention where order or shapes place
-- them there; others have the role copy."""
-- sql = "select 1 where not (select bool_or(has_modules) from trace)"
--
-- [[notes]]
-- status = "estimated"
-- text = """moved_bytes of copy kernels is elements times size of what aten::copy_ writes, by its
-- recorded shape and type."""
-- sql = "select 1 from op where name = 'aten::copy_' and input_dims is not null limit 1"
-- ///
with
    sizes(type_name, bytes) as (
        values
            ('double', 8),
            ('long int', 8),
            ('c10::complex<float>', 8),
            ('float', 4),
            ('int', 4),
            ('c10::BFloat16', 2),
            ('c10::Half', 2),
            ('short int', 2),
            ('signed char', 1),
            ('unsigned char', 1),
            ('bool', 1),
            ('c10::Float8_e4m3fn', 1),
            ('c10::Float8_e4m3fnuz', 1),
            ('c10::Float8_e5m2', 1),
            ('c10::Float8_e5m2fnuz', 1)
    ),
    movers as (
        select
            unnest(
                [
                    'aten::copy_',
                    'aten::clone',
                    'aten::contiguous',
                    'aten::reshape',
                    'aten::flatten',
                    'aten::_to_copy',
                    'aten::to',
                    'aten::type_as',
                    'aten::repeat',
                    'aten::repeat_interleave',
                    'aten::tile',
                    'aten::cat',
                    'aten::stack',
                    'aten::concat',
                    'aten::pad',
                    'aten::constant_pad_nd',
                    'aten::narrow_copy',
                    'aten::_copy_from'
                ]
            ) as name
    ),
    moves as materialized(
        select
            w.work_id,
            w.trace_id,
            w.role,
            w.source,
            w.kind,
            w.name,
            w.family,
            w.op_id,
            w.op_name,
            w.dur_ns,
            row_number() over (partition by w.op_id, w.kind order by w.start_ns, w.work_id) as nth
        from work as w
        where
            (not $attention or w.role like 'attention.%')
            and (
                w.kind = 'memcpy'
                or coalesce(w.family, '') in (
                    'aten_copy',
                    'aten_cat',
                    'inductor_copy',
                    'inductor_cat',
                    'multi_tensor_copy',
                    'memcpy'
                )
                or w.role = 'attention.layout'
                or (
                    w.source = 'cpu'
                    and w.op_name in (
                        'aten::copy_',
                        'aten::clone',
                        'aten::contiguous',
                        'aten::cat',
                        'aten::_to_copy',
                        'aten::repeat'
                    )
                )
            )
    ),
    mover_op as materialized(select op_id, parent_id, name from op where name in (from movers)),
    -- By way of one list, so that the engine knows how few they are.
    moving_op as (
        select op_id, parent_id, input_dims, input_types, input_strides
        from op
        where op_id in (select unnest(list(distinct op_id)) from moves)
    ),
    asked as (
        select
            m.*,
            o.input_dims,
            o.input_types,
            o.input_strides,
            list_filter([m.op_name, p.name, g.name, e.name], lambda name:name is not null) as chain
        from moves as m
        left join moving_op as o on o.op_id = m.op_id
        left join mover_op as p on p.op_id = o.parent_id
        left join mover_op as g on g.op_id = p.parent_id
        left join mover_op as e on e.op_id = g.parent_id
    ),
    shapes as (
        select
            input_dims,
            input_types,
            input_strides,
            try_cast(input_dims -> 0 as bigint[]) as written,
            try_cast(input_dims -> 1 as bigint[]) as read,
            try_cast(input_strides -> 1 as bigint[]) as strides,
            input_types ->> 0 as to_type,
            input_types ->> 1 as from_type
        from asked
        where op_name in ('aten::copy_', 'aten::clone') and input_dims is not null
        group by all
    ),
    told as (
        select
            a.*,
            s.to_type,
            s.from_type,
            len(list_filter(list_zip(s.read, s.strides), lambda pair:pair[1] > 1 and pair[2] = 0))
            > 0 as is_expanded,
            case
                when s.written is not null
                then coalesce(list_product(s.written), 1)::bigint * z.bytes
            end as written_bytes
        from asked as a
        left join
            shapes as s
            on a.op_name in ('aten::copy_', 'aten::clone')
            and s.input_dims = a.input_dims
            and s.input_types is not distinct from a.input_types
            and s.input_strides is not distinct from a.input_strides
        left join sizes as z on z.type_name = s.to_type
    ),
    rows_of_work as (
        select
            t.role,
            case
                when
                    t.kind = 'memcpy'
                    and (
                        regexp_matches(t.name, 'HtoD|DtoH|HostTo|ToHost')
                        or t.op_name = 'aten::_local_scalar_dense'
                    )
                then 'transfer'
                when
                    t.family in ('aten_cat', 'inductor_cat')
                    or list_has_any(t.chain, ['aten::cat', 'aten::stack', 'aten::concat'])
                then 'concatenate'
                when list_has_any(t.chain, ['aten::pad', 'aten::constant_pad_nd'])
                then 'pad'
                when t.op_name = 'aten::copy_' and t.to_type <> t.from_type and t.from_type <> ''
                then 'cast'
                when
                    list_has_any(t.chain, ['aten::repeat', 'aten::repeat_interleave', 'aten::tile'])
                    or (t.is_expanded and t.op_name = 'aten::copy_')
                then 'repeat'
                when list_has_any(t.chain, ['aten::contiguous', 'aten::reshape', 'aten::flatten'])
                then 'make contiguous'
                when list_contains(t.chain, 'aten::_to_copy') and t.to_type is null
                then 'cast'
                when list_contains(t.chain, 'aten::clone')
                then 'clone'
                when t.family = 'inductor_copy'
                then 'compiled copy'
                else 'copy'
            end as movement,
            t.chain[-1] as op,
            t.family,
            t.dur_ns,
            case
                when t.kind = 'memcpy' and k.bytes is not null
                then k.bytes
                when t.kind <> 'memcpy' and t.nth = 1
                then t.written_bytes
                when t.kind <> 'memcpy' and t.written_bytes is not null
                then 0
            end as bytes,
            case
                when t.kind = 'memcpy' and k.bytes is not null
                then 'exact'
                when t.kind <> 'memcpy' and t.written_bytes is not null
                then 'estimated'
                else 'not_derivable'
            end as bytes_status
        from told as t
        left join kernel as k on t.source = 'device' and k.kernel_id = t.work_id
    ),
    whole as materialized(
        select sum(dur_ns) as ns, sum(dur_ns) filter (where role like 'attention.%') as attention_ns
        from work
    ),
    copied as (
        select
            sum(dur_ns) / 1e6 as ms,
            100.0 * sum(dur_ns) / nullif(any_value(w.attention_ns), 0) as share
        from moves
        cross join whole as w
        where role like 'attention.%'
        having share is not null
    )
select
    role,
    movement,
    op,
    family,
    count(*) as calls,
    sum(dur_ns)::bigint as total_ns,
    case
        when role like 'attention.%' then sum(dur_ns) / nullif((select attention_ns from whole), 0)
    end as attention_frac,
    sum(dur_ns) / nullif((select ns from whole), 0) as share_frac,
    sum(bytes)::bigint as moved_bytes,
    1e9 * sum(bytes) / nullif(sum(dur_ns), 0) as moved_bytes_per_s,
    bytes_status,
    (select c from copied as c) as of_attention
from rows_of_work
group by role, movement, op, family, bytes_status
order by total_ns desc, role, movement, op nulls last, family nulls last, bytes_status
limit case when $top > 0 then $top else 9223372036854775807 end
