"""The role of every piece of work, with how sure it is and why.

Owns the decision: kernel family, enclosing op, module, function, then order around the attention core. The
knowledge it decides by lies in TOML; a guess is never sold as certain.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal, NamedTuple

import polars as pl

from tracekit.attention.knowledge import Family, family_of, load, meaning_of
from tracekit.attention.roles.places import NOWHERE, Place, places_of_ops
from tracekit.attention.roles.sequences import UNSAID, found_elsewhere, found_in_kernels, found_in_ops

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tracekit.attention.roles.order import Finding

Confidence = Literal["certain", "likely", "inferred"]
_ALWAYS = {"attention": "attention.core", "comm": "comm"}
_VAGUE = {"other", "attention.other", "copy"}


class Role(NamedTuple):
    """A role, how sure it is, and why."""

    name: str
    confidence: Confidence
    reason: str


class OpMeanings(NamedTuple):
    """For each op: what it does, where it ran, and the role of work it does by itself."""

    actions: list[str | None]
    places: list[Place]
    roles: list[Role]

    def columns(self) -> pl.DataFrame:
        """Return the roles as columns, in the order of the ops."""
        return _columns(self.roles)


def _columns(roles: Sequence[Role]) -> pl.DataFrame:
    """Return roles, of which few differ, as the three columns that tables have."""
    keys = list(map(id, roles))
    known = dict(zip(keys, roles, strict=True))
    numbers = {key: number for number, key in enumerate(known)}
    each = pl.Series([numbers[key] for key in keys], dtype=pl.Int64)
    different = pl.DataFrame(list(known.values()), schema=_SCHEMA, orient="row")
    return different[each] if len(roles) else different


_SCHEMA = {"role": pl.String, "role_confidence": pl.String, "role_reason": pl.String}


def op_meanings(ops: pl.DataFrame, frames: pl.DataFrame) -> OpMeanings:
    """Give every op an action, a place and a role. Ops and frames are numbered from 0 in order of start."""
    places = places_of_ops(ops, frames)
    actions = _actions(ops)
    ordered = _by_order(ops["phase"].to_list(), actions, places)
    deciding = _OpRoles(ops, actions, places, ordered)
    roles = deciding.all()
    if told := found_in_ops(ops, [role.name for role in roles]):
        deciding.tell(roles, _inferred(told))
    return OpMeanings(actions, places, roles)


def _inferred(told: Mapping[int, Finding]) -> dict[int, Role]:
    """Return as roles what order tells, of which few differ."""
    known = {finding: Role(finding.role, "inferred", finding.reason) for finding in set(told.values())}
    return {row: known[finding] for row, finding in told.items()}


class _OpRoles:
    """Decides the roles of ops, of which few differ, each kind once."""

    def __init__(
        self,
        ops: pl.DataFrame,
        actions: Sequence[str | None],
        places: Sequence[Place],
        ordered: Mapping[int, Role],
    ) -> None:
        self._names, self._phases = ops["name"].to_list(), ops["phase"].to_list()
        self._forwards: list[int | None] = ops["forward_op_id"].to_list()
        self._actions, self._places, self._ordered = actions, places, ordered
        self._decided: dict[tuple[int, str | None, str, str], Role] = {}  # places live on, so their ids are theirs
        self._inherited: dict[tuple[int, int, str], Role] = {}

    def all(self) -> list[Role]:
        """Return the role of each op by what it does, where it ran, and the forward op of a backward one."""
        roles: list[Role] = []
        decided, ordered, inherited = self._decided, self._ordered, self._inherited
        columns = zip(self._places, self._actions, self._names, self._phases, self._forwards, strict=True)
        for row, (place, action, name, phase, forward) in enumerate(columns):
            key = (id(place), action, name, phase)
            role = ordered.get(row) or decided.get(key)
            if role is None:
                role = decided[key] = decide(place, action, name, phase)
            if forward is not None:
                origin = roles[forward]
                role = inherited.get((id(origin), id(role), name)) or self._backward(origin, role, name)
            roles.append(role)
        return roles

    def tell(self, roles: list[Role], told: Mapping[int, Role]) -> None:
        """Put in what order tells of ops of which nothing else says anything, and of their backward ops."""
        changed = {row: role for row, role in told.items() if self._own(row).name in UNSAID}
        moved = set(changed)
        for row, forward in enumerate(self._forwards):
            if row in moved or forward in moved:
                role = changed[row] if row in changed else self._own(row)
                roles[row] = role if forward is None else self._backward(roles[forward], role, self._names[row])
                moved.add(row)

    def _own(self, row: int) -> Role:
        key = (id(self._places[row]), self._actions[row], self._names[row], self._phases[row])
        return self._ordered.get(row) or self._decided[key]

    def _backward(self, origin: Role, own: Role, name: str) -> Role:
        key = (id(origin), id(own), name)
        role = self._inherited.get(key)
        if role is None:
            found = _backward_of(origin, own)
            role = self._inherited[key] = own if meaning_of(name).action == "attention" else found
        return role


def _backward_of(origin: Role, own: Role) -> Role:
    """Return the role of a backward op whose forward op has the role `origin`, and which by itself has its `own`."""
    if own.name in {"comm", "optimizer"} or origin.name in _VAGUE:
        return own
    return Role(
        origin.name,
        "likely" if origin.confidence == "certain" else origin.confidence,
        f"backward of: {origin.reason}",
    )


def _actions(ops: pl.DataFrame) -> list[str | None]:
    """Return what each op does by its own name, else by its parent's, else by its forward op's."""
    names = ops["name"].to_list()
    by_name = {name: meaning_of(name).action for name in set(names)}
    actions: list[str | None] = []
    for name, parent, forward in zip(names, ops["parent_id"].to_list(), ops["forward_op_id"].to_list(), strict=True):
        action = by_name[name]
        if action is None and parent is not None:
            action = actions[parent]
        if action is None and forward is not None:
            action = actions[forward]
        actions.append(action)
    return actions


def decide(place: Place, action: str | None, op: str | None, phase: str) -> Role:
    """Return the role of work with this action in this place; `op` names it in the reason."""
    rules = load("roles/roles")
    if action == "comm":
        return Role("comm", "certain", f"op {op}")
    if phase == "optimizer" and place.name in {None, "optimizer"}:
        return Role("optimizer", "certain", place.reason or "inside an optimizer step")
    # The name of an Inductor kernel lists what was fused into it, which is a hint and no proof.
    by_op = place.reason.startswith("op ") and not place.reason.startswith("op triton_")
    if place.name == "attention":
        if place.part is not None:
            return Role(rules["attention_part"][place.part], "likely", place.reason)
        role = rules["attention"].get(action, "attention.other")
        sure: Confidence = "certain" if by_op and role == "attention.core" else "likely"
        return Role(role, sure, place.reason)
    if place.name in rules["place"]:
        return Role(rules["place"][place.name], "certain" if by_op else "likely", place.reason)
    if place.name == "block" and op in {"aten::add", "aten::add_"}:
        return Role("residual", "inferred", f"an add right inside {place.reason}")
    role = rules["action"].get(action, "other")
    return Role(role, "likely" if role != "other" else "inferred", f"op {op}" if op else "nothing says more")


def _by_order(phases: Sequence[str], actions: Sequence[str | None], places: Sequence[Place]) -> dict[int, Role]:
    """Return the roles that only order around the core of an attention decides.

    Linear layers before the core project q, k and v, those after it the output; a norm after it is none of
    queries and keys. Batched products before a softmax make scores, the first after it applies them to values.
    """
    scopes: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row, place in enumerate(places):
        if place.scope is None or phases[row] == "backward":
            continue
        if place.part == "norm" or (place.part is None and actions[row] in _ORDERED):
            scopes[place.scope].append(row)
    found: dict[int, Role] = {}
    for rows in scopes.values():
        found.update(_in_scope(rows, actions, places))
    return found


_ORDERED = {"gemm", "bmm", "softmax", "attention", "norm"}


def _in_scope(rows: list[int], actions: Sequence[str | None], places: Sequence[Place]) -> Iterator[tuple[int, Role]]:
    """Yield the roles that order decides within one attention, whose ops are `rows`, in order of start."""
    where = next((places[row].reason for row in rows if places[row].part is None), "the attention")
    core = next((row for row in rows if actions[row] in {"attention", "softmax"}), None)
    softmaxes = [row for row in rows if actions[row] == "softmax"]
    used: set[int] = set()
    for row in rows:
        if core is None:
            return
        if actions[row] == "bmm":
            if softmaxes:
                yield row, _batched_product(row, softmaxes, used, where)
        elif actions[row] == "gemm" and places[row].part is None:
            before = row < core
            role = "attention.qkv_proj" if before else "attention.out_proj"
            yield row, Role(role, "likely", f"a linear {'before' if before else 'after'} the core of {where}")
        elif row > core and (actions[row] == "norm" or places[row].part == "norm"):
            yield row, Role("attention.other", "likely", f"a norm after the core of {where}")


def _batched_product(row: int, softmaxes: list[int], used: set[int], where: str) -> Role:
    earlier = [softmax for softmax in softmaxes if softmax < row]
    if earlier and (earlier[-1] not in used or earlier[-1] == softmaxes[-1]):
        used.add(earlier[-1])
        return Role("attention.values", "likely", f"a batched product after the softmax of {where}")
    return Role("attention.scores", "likely", f"a batched product before the softmax of {where}")


def kernel_roles(kernels: pl.DataFrame, ops: pl.DataFrame, meanings: OpMeanings) -> pl.DataFrame:
    """Return `family`, `role`, `role_confidence` and `role_reason` for each kernel, in the kernels' order."""
    names, op_ids = kernels["name"].to_list(), kernels["op_id"].to_list()
    op_names, op_phases = ops["name"].to_list(), ops["phase"].to_list()
    known = {name: family_of(name) for name in set(names)}
    families = [known[name] for name in names]
    roles: list[Role] = []
    decided: dict[object, Role] = {}
    for family, op_id in zip(families, op_ids, strict=True):
        if op_id is None:
            key: object = id(family)
        else:  # ops that are alike in these make kernels of a family alike
            op = meanings.actions[op_id], id(meanings.places[op_id]), id(meanings.roles[op_id])
            key = (id(family), *op, op_names[op_id], op_phases[op_id])
        role = decided.get(key)
        if role is None:
            role = decided[key] = _kernel_role(family, op_id, op_names, op_phases, meanings)
        roles.append(role)
    for find in (found_elsewhere, found_in_kernels):
        if told := _inferred(find(kernels, [role.name for role in roles])):
            roles = [told.get(row, role) for row, role in enumerate(roles)]
    shown = pl.Series("family", [family.name if family else None for family in families], dtype=pl.String)
    return pl.DataFrame([shown]).hstack(_columns(roles))


def _kernel_role(
    family: Family | None, op_id: int | None, op_names: Sequence[str], op_phases: Sequence[str], meanings: OpMeanings
) -> Role:
    action = family.action if family else None
    family_name = family.name if family else None
    if op_id is None:
        return _unlinked(action, family_name)
    op_action = meanings.actions[op_id]
    specific = load("roles/roles")["specific"]["actions"]
    if action == "gemm" or action not in specific or (action == op_action and action not in _ALWAYS):
        if op_action is None and action is not None:
            return decide(meanings.places[op_id], action, op_names[op_id], op_phases[op_id])
        return meanings.roles[op_id]
    return _by_family(family_name or "", action, meanings.places[op_id], meanings.roles[op_id], op_phases[op_id])


def _by_family(family: str, action: str | None, place: Place, op_role: Role, phase: str) -> Role:
    """Return the role of a kernel whose family says what it does; the place may say more."""
    if action in _ALWAYS:
        return Role(_ALWAYS[action], "certain", f"kernel family {family}")
    if place.name is None or place.name == "block":
        from_action = decide(NOWHERE, action, None, phase)
        return op_role if from_action.name == "other" else from_action._replace(reason=f"kernel family {family}")
    from_place = decide(place, action, family, phase)
    return op_role if from_place.name in _VAGUE else from_place


def _unlinked(action: str | None, family: str | None) -> Role:
    """Return the role of a kernel without an op, from its family alone."""
    role = load("roles/roles")["action"].get(action, "unlinked")
    if role in {"copy", "unlinked"}:  # a copy may belong to anything
        role = "unlinked"
        known = f"kernel family {family} does not tell the role" if family else "its name is not known"
        return Role(role, "inferred", f"no op in the trace, and {known}")
    return Role(role, "likely", f"kernel family {family}, no op in the trace")
