"""Match names against a list of globs."""

import re
from collections.abc import Sequence
from fnmatch import translate


class Names:
    """The names that match one of some globs.

    :param globs: if empty, every name matches, but no name at all if `is_exact`.
    :param is_exact: matching is case-sensitive.
    """

    def __init__(self, globs: Sequence[str], *, is_exact: bool = False) -> None:
        self._all = not globs and not is_exact
        self._is_exact = is_exact
        pattern = "|".join(translate(_folded(glob, is_exact)) for glob in globs)
        self._pattern = re.compile(pattern if globs else "(?!)")

    def __contains__(self, name: str) -> bool:
        """Return whether the name matches."""
        return self._all or self._pattern.match(_folded(name, self._is_exact)) is not None


def _folded(name: str, is_exact: bool) -> str:
    """Lower the ASCII letters, as `find -iname` compares where no locale is set."""
    return name if is_exact else name.translate(_LOWER)


_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
