"""C++ names as compilers mangle them, to names that people read.

Owns which names are mangled and how long a readable one may be. Names come from files that others wrote, and a few
hundred bytes of back-references can spell gigabytes, so the library must bound its own work.
"""

from __future__ import annotations

from functools import cache

import polars as pl

_PREFIX = "_Z"
"""What names begin with in the Itanium C++ ABI, which the compilers of CUDA, HIP and SYCL follow."""
_LONGEST = 2**14
"""Characters of a readable name; the longest of a real kernel that was met has 10,646."""


@cache
def demangled(name: str) -> str | None:
    """Return a mangled C++ name as people read it, or None for one that is not, or can't be read in reasonable space.

    Raises nothing.
    """
    if not name.startswith(_PREFIX):
        return None
    import demangle  # most traces have no such name

    limits = demangle.Limits(max_output=_LONGEST)
    found = demangle.demangle(name, language="itanium", limits=limits)
    return None if found == name or len(found) > _LONGEST else found


def readable(names: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return names as people read them, and the ones they had, null where that is the same."""
    nothing = pl.Series([None], dtype=pl.String).new_from_index(0, len(names))
    is_mangled = names.str.starts_with(_PREFIX).fill_null(value=False)
    if not is_mangled.any():
        return names, nothing
    found = {name: demangled(name) for name in names.filter(is_mangled).unique().to_list()}
    known = {name: plain for name, plain in found.items() if plain is not None}
    if not known:
        return names, nothing
    return names.replace(known), names.set(~names.is_in(list(known)), None)
