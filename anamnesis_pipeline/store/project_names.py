"""What projects are called: aliases merge the names of what belongs together. Pure."""

from collections.abc import Mapping


def store_name(aliases: Mapping[str, str], name: str) -> str:
    """What a project is called; aliases of aliases are followed."""
    while name in aliases:
        name = aliases[name]
    return name


def names_of(aliases: Mapping[str, str], name: str) -> set[str]:
    """All names, own ones and aliases, of the project that `name` is one of."""
    called = store_name(aliases, name)
    return {called} | {alias for alias in aliases if store_name(aliases, alias) == called}
