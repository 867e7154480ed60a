-- /// query
-- summary = "Where in the tree of nn.Modules does the time go?"
-- requires = ["module.path", "work.dur_ns"]
--
-- [params]
-- fold = { default = true, doc = "Put modules of one class with alike parents into one row." }
-- depth = { default = 0, doc = "Deepest level to show, from 1 for the root; 0 for all." }
-- min_share = { default = 0.0, doc = "Least share of the time to show; 0.01 is 1 %." }
--
-- [columns]
-- tree = "Class name, indented by its depth; with its number where rows are not folded."
-- depth = "Level in the tree: 1 for a root."
-- modules = "Modules in the row; 1 unless folded."
-- inclusive_ns = "Time of its work and that of all modules inside it; streams count twice."
-- own_ns = "Time of its work outside of any module inside it."
-- share_frac = "inclusive_ns over the time of all work, in modules or not."
-- kernels = "Pieces of its work, modules inside it included."
-- own_kernels = "Pieces of its work outside of any module inside it."
-- path = "Classes from the root down; with their numbers where rows are not folded."
--
-- [[notes]]
-- status = "exact"
-- text = "{0:.1f} % of the time of all work ran in a recorded module."
-- sql = '''
-- select 100.0 * coalesce(sum(dur_ns) filter (where module_id is not null), 0)
-- / nullif(sum(dur_ns), 0)
-- from work
-- '''
--
-- [[notes]]
-- status = "info"
-- text = """Modules that several others call, such as {1}: {0}. Their own time, {2:.3f} ms, counts
-- in the first of those."""
-- sql = '''
-- with
-- module_call as materialized (
-- select module_id, parent_id from frame where name like 'nn.Module: %'
-- ),
-- caller as (
-- select frame_id, module_id from frame where frame_id in (select parent_id from module_call)
-- ),
-- shared as (
-- select c.module_id
-- from module_call as c join caller as p on p.frame_id = c.parent_id
-- group by c.module_id
-- having count(distinct p.module_id) > 1
-- )
-- select
-- count(*) as modules,
-- min(m.class_name),
-- (select coalesce(sum(dur_ns), 0) / 1e6 from work where module_id in (from shared))
-- from module as m join shared as s using (module_id)
-- having modules > 0
-- '''
-- ///
with recursive
    classes as (
        select module_id, trace_id, parent_id, class_name, class_name as class_path, 1 as level
        from module
        where parent_id is null
        union all
        select
            m.module_id,
            m.trace_id,
            m.parent_id,
            m.class_name,
            c.class_path || '/' || m.class_name as class_path,
            c.level + 1 as level
        from module as m
        join classes as c on m.parent_id = c.module_id
    ),
    named as (
        select
            c.module_id,
            c.parent_id,
            c.level,
            case when $fold then c.class_path else m.trace_id || '/' || m.module_id end as node,
            case when $fold then c.class_path else m.path end as path,
            case when $fold then m.class_name else m.class_name || '_' || m.instance end as label
        from classes as c
        join module as m using (module_id)
    ),
    nodes as (
        select
            n.node,
            any_value(p.node) as parent_node,
            any_value(n.path) as path,
            any_value(n.label) as label,
            any_value(n.level) as level,
            min(n.module_id) as first_id,
            count(*) as modules
        from named as n
        left join named as p on p.module_id = n.parent_id
        group by n.node
    ),
    placed as (
        select node, [first_id] as place
        from nodes
        where parent_node is null
        union all
        select n.node, list_append(p.place, n.first_id) as place
        from nodes as n
        join placed as p on n.parent_node = p.node
    ),
    own as (
        select n.node, sum(w.dur_ns) as ns, count(*) as pieces
        from work as w
        join named as n on n.module_id = w.module_id
        group by n.node
    ),
    above as (
        select node, node as around
        from nodes
        union all
        select a.node, n.parent_node as around
        from above as a
        join nodes as n on n.node = a.around
        where n.parent_node is not null
    ),
    inclusive as (
        select a.around as node, sum(o.ns) as ns, sum(o.pieces) as pieces
        from above as a
        join own as o on o.node = a.node
        group by a.around
    ),
    whole as (select sum(dur_ns) as ns from work)
select
    repeat('  ', n.level - 1) || n.label as tree,
    n.level::bigint as depth,
    n.modules,
    coalesce(i.ns, 0)::bigint as inclusive_ns,
    coalesce(o.ns, 0)::bigint as own_ns,
    coalesce(i.ns, 0) / nullif((select ns from whole), 0) as share_frac,
    coalesce(i.pieces, 0)::bigint as kernels,
    coalesce(o.pieces, 0) as own_kernels,
    n.path
from nodes as n
join placed as p using (node)
left join inclusive as i using (node)
left join own as o using (node)
where ($depth <= 0 or n.level <= $depth) and coalesce(share_frac, 0) >= $min_share
order by p.place
