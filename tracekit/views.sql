-- Views over the tables of schema.sql: rows of any step, work, and matrix products.

create view kernel_of_any_step as select * from kernel;
comment on view kernel_of_any_step is 'kernel, whatever step its work was launched in and --steps selects: for what ran in a step''s window.';

create view launch_of_any_step as select * from launch;
comment on view launch_of_any_step is 'launch, whatever step and phase it was made in: for what started the work of a step''s window.';

create view other_event_of_any_step as select * from other_event;
comment on view other_event_of_any_step is 'other_event, whatever step it lies in: for calls that reach into a step''s window.';

create view device_wait_of_any_step as
with
    timed as (select *, start_ns + dur_ns as end_ns from kernel_of_any_step),
    reached as (
        select
            *,
            max(end_ns) over (
                partition by trace_id, device order by start_ns, end_ns, kernel_id
                rows between unbounded preceding and 1 preceding
            ) as free_ns
        from timed
    ),
    told as (
        select
            *,
            last_value(
                case when free_ns is null or end_ns >= free_ns then {'kernel_id':kernel_id, 'launch_id':launch_id} end
                ignore nulls
            ) over (
                partition by trace_id, device order by start_ns, end_ns, kernel_id
                rows between unbounded preceding and 1 preceding
            ) as before
        from reached
    )
select
    t.kernel_id,
    t.trace_id,
    t.device,
    t.stream,
    t.step_id,
    t.free_ns,
    t.before.kernel_id as before_id,
    case when t.before is not null then coalesce(t.before.launch_id = t.launch_id, false) end as is_same_launch,
    case when t.start_ns > t.free_ns then t.start_ns - t.free_ns when t.start_ns <= t.free_ns then 0 end as idle_ns,
    l.start_ns as launched_ns
from told as t
left join launch_of_any_step as l on l.launch_id = t.launch_id;
comment on view device_wait_of_any_step is 'device_wait, whatever step its kernel was launched in: for what ran in a step''s window.';

create view cpu_op as select * from op where (select not bool_or(has_device) from trace);
comment on view cpu_op is 'op where no device was recorded, else empty: what stands in for the kernels.';

create view work as
select
    k.kernel_id as work_id,
    k.trace_id,
    t.rank,
    'device' as source,
    k.kind,
    k.name,
    k.device,
    k.stream,
    k.start_ns,
    k.dur_ns,
    k.op_id,
    k.op_name,
    k.module_id,
    m.class_name as module_class,
    m.path as module_path,
    k.step_id,
    s.number as step,
    k.phase,
    k.family,
    k.role,
    k.role_confidence,
    k.role_reason,
    k.call_id
from kernel as k
join trace as t using (trace_id)
left join module as m on m.module_id = k.module_id
left join step as s on s.step_id = k.step_id
union all by name
select
    o.op_id as work_id,
    o.trace_id,
    t.rank,
    'cpu' as source,
    o.kind,
    o.name,
    null::bigint as device,
    null::bigint as stream,
    o.start_ns,
    o.self_ns as dur_ns,
    o.op_id,
    o.name as op_name,
    o.module_id,
    m.class_name as module_class,
    m.path as module_path,
    o.step_id,
    s.number as step,
    o.phase,
    null::varchar as family,
    o.role,
    o.role_confidence,
    o.role_reason,
    null::bigint as call_id
from cpu_op as o
join trace as t using (trace_id)
left join module as m on m.module_id = o.module_id
left join step as s on s.step_id = o.step_id
where o.kind <> 'annotation'
;

comment on view work is 'What questions count: the kernels of a run with their roles; where no device was recorded, the self time of CPU ops.';
comment on column work.work_id is 'kernel_id, or op_id where there is no device.';
comment on column work.trace_id is 'Trace it belongs to.';
comment on column work.rank is 'Rank of that trace.';
comment on column work.source is 'device, or cpu where no device was recorded.';
comment on column work.kind is 'kernel, memcpy or memset; the kind of op where there is no device.';
comment on column work.name is 'Kernel name; op name where there is no device.';
comment on column work.device is 'Device index.';
comment on column work.stream is 'Stream id.';
comment on column work.start_ns is 'Start.';
comment on column work.dur_ns is 'Duration on the device; self time on the CPU where there is no device.';
comment on column work.op_id is 'Innermost op around its launch.';
comment on column work.op_name is 'Name of that op.';
comment on column work.module_id is 'nn.Module of that op.';
comment on column work.module_class is 'Class of that module.';
comment on column work.module_path is 'Path of that module.';
comment on column work.step_id is 'Step it belongs to.';
comment on column work.step is 'Number of that step; null where steps were not marked.';
comment on column work.phase is 'forward, backward, recompute, optimizer or other.';
comment on column work.family is 'Kernel family; null for an unknown name and on the CPU.';
comment on column work.role is 'What it does in the model.';
comment on column work.role_confidence is 'certain, likely or inferred.';
comment on column work.role_reason is 'What the role was decided by.';
comment on column work.call_id is 'Attention call it belongs to, as kernel has it.';

create view gemm_call as
with
    counted as (
        select
            trace_id, kernel_id as work_id, name, dur_ns, op_id, op_name, step_id, phase, family, compute_dtype
        from kernel
        union all by name
        select trace_id, op_id as work_id, name, self_ns as dur_ns, op_id, name as op_name, step_id, phase
        from cpu_op
        where kind <> 'annotation'
    ),
    pieces as (
        select c.*, p.op_id is not null as is_op
        from counted as c
        left join (select op_id from product) as p on p.op_id = c.op_id
        where p.op_id is not null or c.family like '%gemm%' or c.family like '%gemv%'
    ),
    calls as (
        select
            trace_id,
            case when is_op then op_id end as op_id,
            case when not is_op then work_id end as work_id,
            any_value(op_name) as op_name,
            any_value(pieces.op_id) as asked_by,
            any_value(step_id) as step_id,
            any_value(phase) as phase,
            count(*) as pieces,
            sum(dur_ns)::bigint as work_ns,
            first(name order by dur_ns desc, name) as kernel,
            first(family order by dur_ns desc, name) as family,
            first(compute_dtype order by dur_ns desc, compute_dtype) filter (where compute_dtype is not null) as compute_dtype
        from pieces
        group by all
    )
select
    c.trace_id,
    c.op_id,
    c.work_id,
    c.op_name,
    c.step_id,
    c.phase,
    p.batch,
    p.m,
    p.n,
    p.k,
    coalesce(c.compute_dtype, p.dtype) as dtype,
    case when c.compute_dtype is not null then 'kernel' when p.dtype is not null then 'inputs' end as dtype_source,
    c.kernel,
    c.family,
    c.pieces,
    c.work_ns,
    p.flops,
    coalesce(p.flops_status, 'not_derivable') as flops_status,
    p.bytes,
    coalesce(p.bytes_status, 'not_derivable') as bytes_status,
    case
        when c.op_id is not null
        then p.reason
        when c.op_name is null
        then 'no op asked for it in the trace'
        when c.asked_by is null
        then 'its op is known from the capture of its graph, shapes are not'
        else 'its op has no shapes of a product'
    end as reason
from calls as c
left join product as p on p.op_id = c.op_id
;

comment on view gemm_call is 'Matrix products: one row an op with all work that it launched, copies and sets included; products that no such op asked for a row a kernel.';
comment on column gemm_call.trace_id is 'Trace it belongs to.';
comment on column gemm_call.op_id is 'The op; null where a kernel alone tells of it.';
comment on column gemm_call.work_id is 'The work where no op tells of it; null where one does.';
comment on column gemm_call.op_name is 'Name of the op.';
comment on column gemm_call.step_id is 'Step it belongs to.';
comment on column gemm_call.phase is 'forward, backward, recompute, optimizer or other.';
comment on column gemm_call.batch is 'Products in the call.';
comment on column gemm_call.m is 'Rows of the first factor.';
comment on column gemm_call.n is 'Columns of the second factor.';
comment on column gemm_call.k is 'Length of the sums.';
comment on column gemm_call.dtype is 'Number format in which it multiplies.';
comment on column gemm_call.dtype_source is 'What tells it: kernel (its name) or inputs (then fp32 may run as tf32).';
comment on column gemm_call.kernel is 'Kernel of most of its time.';
comment on column gemm_call.family is 'Family of that kernel.';
comment on column gemm_call.pieces is 'Pieces of work.';
comment on column gemm_call.work_ns is 'Summed duration of its work.';
comment on column gemm_call.flops is 'Floating-point operations: 2 batch m n k.';
comment on column gemm_call.flops_status is 'exact, estimated or not_derivable.';
comment on column gemm_call.bytes is 'Bytes that must move: factors, result and what is added, each once.';
comment on column gemm_call.bytes_status is 'exact, estimated or not_derivable.';
comment on column gemm_call.reason is 'Why sizes are not derivable, or an estimate.';

