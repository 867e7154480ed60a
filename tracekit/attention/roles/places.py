"""Where in the model a piece of work ran: attention, mlp, norm and so on, from what lies around it.

Owns the rule by which modules, functions and ops, read from the outside inwards, narrow the place down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracekit.attention.knowledge import load, meaning_of, place_of_function, place_of_module
from tracekit.link import nearest

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray


class Place(NamedTuple):
    """A place: its name, a narrower part of attention, the attention it belongs to, and why.

    `scope` names one call of an attention module or op, so that order within it can be asked.
    """

    name: str | None = None
    part: str | None = None
    scope: tuple[str, int] | None = None
    reason: str = ""
    inner_class: str = ""


NOWHERE = Place()
_TRANSPARENT = {None, "container", "linear", "dropout", "activation", "pool"}


def enter(around: Place, place: str | None, scope: tuple[str, int], reason: str) -> Place:
    """Return the place after going from `around` into something that marks `place`."""
    if place in _TRANSPARENT:
        return around
    if place == "attention":
        return around if around.name == "attention" else Place("attention", None, scope, reason)
    if place in {"mlp", "moe"}:
        return around if around.name == "moe" else Place(place, None, None, reason)
    if place == "comm" or place == "optimizer":
        return Place(place, None, None, reason)
    if around.name == "attention":
        return around._replace(part=place, reason=reason) if place in load("roles/roles")["attention_part"] else around
    if around.name in {"mlp", "moe"} and place not in {"norm", "block", "rope", "loss"}:
        return around
    if place == "layout":
        return around
    return Place(place, None, None, reason)


def places_of_frames(frames: pl.DataFrame) -> list[Place]:
    """Return for each Python frame the place inside it; frames are numbered from 0 and sorted by start."""
    at, places = _telling_frames(frames)
    return [NOWHERE if row < 0 else places[row] for row in at.tolist()]


def _telling_frames(frames: pl.DataFrame) -> tuple[NDArray[np.int64], dict[int, Place]]:
    """Return for each frame the innermost frame around it that marks a place, or -1, and the places inside those."""
    names = frames["name"]
    telling = [name for name in names.unique() if name.startswith(_MODULE) or place_of_function(name) is not None]
    chosen = names.is_in(telling).to_numpy()
    parents = frames["parent_id"].fill_null(-1).to_numpy()
    at = nearest(parents, chosen)
    rows = np.flatnonzero(chosen)
    outer = dict(zip(rows.tolist(), np.where(parents[rows] < 0, -1, at[parents[rows]]).tolist(), strict=True))
    said = dict(zip(rows.tolist(), names.gather(rows).to_list(), strict=True))
    found = {-1: NOWHERE}
    for row in outer:
        chain = []
        current = row
        while current not in found and current not in chain:  # parents mostly come first
            chain.append(current)
            current = outer[current]
        for member in reversed(chain):
            found[member] = _into_frame(found.get(outer[member], NOWHERE), said[member], member)
    return at, found


_MODULE = "nn.Module: "


def _into_frame(around: Place, name: str, frame_id: int) -> Place:
    if not name.startswith(_MODULE):
        place = place_of_function(name)
        return (
            around
            if place is None
            else enter(around, place, ("frame", frame_id), f"function {name.rsplit(': ', 1)[-1]}")
        )
    class_name = name.removeprefix(_MODULE).rstrip("0123456789").removesuffix("_")
    place = place_of_module(class_name)
    if place == "linear" and _is_head(around):
        place = "lm_head"
    entered = enter(around, place, ("frame", frame_id), f"module {class_name}")
    return entered._replace(inner_class=class_name)


def _is_head(around: Place) -> bool:
    """Tell whether a linear layer here is the output projection: it sits right in a language model's class."""
    return around.name is None and around.inner_class.endswith(tuple(load("roles/roles")["lm_head"]["parents"]))


def places_of_ops(ops: pl.DataFrame, frames: pl.DataFrame) -> list[Place]:
    """Return for each op, numbered from 0 in order of start, the place it ran in, itself included.

    A backward op is where its forward op was.
    """
    in_frame, places = _telling_frames(frames)
    found: list[Place] = []
    names = ops["name"].to_list()
    marks = {name: place for name in set(names) if (place := meaning_of(name).place) not in _TRANSPARENT}
    at = in_frame.tolist()
    telling = [None if frame is None else at[frame] for frame in ops["frame_id"].to_list()]
    forwards = ops["forward_op_id"].to_list()
    columns = (names, ops["parent_id"].to_list(), telling, forwards)
    for row, (name, parent, frame, forward) in enumerate(zip(*columns, strict=True)):
        if forward is not None and (parent is None or forwards[parent] != forward):
            around = found[forward]
        else:
            around = found[parent] if parent is not None else NOWHERE
        # Frames that mark nothing new leave an op in the op around it.
        if forward is None and frame is not None and (parent is None or frame != telling[parent]):
            inside = places[frame]
            around = around if inside.name is None and around.name is not None else inside
        found.append(enter(around, marks[name], ("op", row), f"op {name}") if name in marks else around)
    return found
