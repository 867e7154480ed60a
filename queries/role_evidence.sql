-- /// query
-- summary = "By what was each role decided, with an example for every reason?"
-- requires = ["work.dur_ns"]
--
-- [params]
-- role = { default = "", doc = "A role, or what roles begin with; empty: all." }
-- top = { default = 40, doc = "Rows to return, 0 for all." }
--
-- [columns]
-- role = "What the work does in the model."
-- confidence = "How sure that is: certain, likely or inferred."
-- reason = "What decided: kernel family, op, module, function, or order and shapes."
-- calls = "Pieces of work with this role for this reason."
-- total_ns = "Their summed duration; concurrent streams count twice."
-- share_frac = "total_ns over that of all work shown."
-- op = "Op of the longest of them; null where it has none."
-- shapes = "Shapes of that op's inputs; null where they were not recorded."
-- module_path = "Its nn.Module; null where none was recorded."
-- kernel = "Its kernel; the op where there is no device."
--
-- [[notes]]
-- status = "warning"
-- text = "{0:.1f} % of the time shown has an inferred role: judge by the examples."
-- sql = '''
-- select 100.0 * sum(dur_ns) filter (where role_confidence = 'inferred') / sum(dur_ns) as percent
-- from work
-- where $role = '' or role = $role or starts_with(role, $role)
-- having percent >= 1
-- '''
-- ///
with
    shown as (
        select
            work_id, op_id, role, role_confidence, role_reason, dur_ns, op_name, module_path, name
        from work
        where $role = '' or role = $role or starts_with(role, $role)
    ),
    grouped as (
        select
            role,
            role_confidence,
            role_reason,
            count(*) as calls,
            sum(dur_ns)::bigint as total_ns,
            first(
                {'op_id':op_id, 'op':op_name, 'module_path':module_path, 'kernel':name}
                order by dur_ns desc, work_id
            ) as longest
        from shown
        group by role, role_confidence, role_reason
    ),
    kept as (
        select *, total_ns / nullif(sum(total_ns) over (), 0) as share_frac
        from grouped
        order by total_ns desc, role, role_confidence, role_reason
        limit case when $top > 0 then $top else 9223372036854775807 end
    ),
    longest_op as (select op_id, input_dims from op where op_id in (select longest.op_id from kept))
select
    k.role,
    k.role_confidence as confidence,
    k.role_reason as reason,
    k.calls,
    k.total_ns,
    k.share_frac,
    k.longest.op as op,
    o.input_dims as shapes,
    k.longest.module_path as module_path,
    k.longest.kernel as kernel
from kept as k
left join longest_op as o on o.op_id = k.longest.op_id
order by k.total_ns desc, k.role, k.role_confidence, k.role_reason
