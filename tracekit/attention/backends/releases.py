"""Releases of PyTorch: which are known, which a version is, and which a trace can be of by what its rows show."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from tracekit.attention.knowledge import load

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

Number = tuple[int, ...]


class Told(NamedTuple):
    """The releases that a trace can be of, oldest first, and the rows that say so; no release if rows contradict."""

    releases: tuple[str, ...]
    reasons: tuple[str, ...]


def known_releases() -> tuple[str, ...]:
    """Return every release that rules know, oldest first."""
    return tuple(load("backends/backends")["releases"])


@cache
def number_of(version: str) -> Number:
    """Return a version's numbers: (2, 13, 0) for `2.13.0+cpu`."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


@cache
def holds_at(release: str, since: str | None, until: str | None) -> bool:
    """Return whether a release lies in a range, whose ends belong to it."""
    number = number_of(release)
    return (not since or _padded(number) >= _padded(number_of(since))) and (
        not until or number[: len(number_of(until))] <= number_of(until)
    )


def release_of(version: str) -> str | None:
    """Return the known release that a version is, None for one that is older or newer than all of them."""
    number = number_of(version)
    found = [release for release in known_releases() if _padded(number) >= _padded(number_of(release))]
    return found[-1] if found and number[:2] == number_of(found[-1])[:2] else None


def is_exact(version: str) -> bool:
    """Return whether a version is a released one that rules know: no nightly, no candidate, no vendor's."""
    return release_of(version) is not None and re.fullmatch(r"[\d.]+(\+(cu|cpu|rocm|xpu)[\w.]*)?", version) is not None


def releases_of(ops: Mapping[str, Collection[int]]) -> Told:
    """Return the releases that a trace can be of, by the ops in it and the numbers of arguments each was seen with.

    An op that was seen without its arguments has none; numbers that no release has say nothing.
    """
    releases, reasons = list(known_releases()), []
    for row in load("backends/backends")["presence"]:
        if row["op"] in ops:
            releases = [release for release in releases if holds_at(release, row["since"], None)]
            reasons.append(f"{row['op']} is there from {row['since']} on")
    for row in load("backends/backends")["arity"]:
        counts = [count for count in row["counts"] if count["is"] in ops.get(row["op"], ())]
        if not counts:
            continue
        fits = [
            release
            for release in releases
            if any(holds_at(release, count.get("since"), count.get("until")) for count in counts)
        ]
        if len(fits) < len(releases):
            reasons.append(f"{row['op']} has {', '.join(str(count['is']) for count in counts)} arguments")
        releases = fits
    return Told(tuple(releases), tuple(reasons))


def span_of(releases: Collection[str]) -> str:
    """Return releases as ranges: `2.1 to 2.4, 2.6`."""
    every = known_releases()
    runs: list[list[str]] = []
    for release in sorted(releases, key=number_of):
        is_next = bool(runs) and release in every and runs[-1][-1] in every
        if is_next and every.index(release) == every.index(runs[-1][-1]) + 1:
            runs[-1].append(release)
        else:
            runs.append([release])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def _padded(number: Number) -> Number:
    return (*number, 0, 0, 0)[:3]
