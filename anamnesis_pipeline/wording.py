"""How what is counted and named reads to people. Pure."""


def counted(number: int, one: str, many: str = "") -> str:
    """`1 part`, `1,200 parts`.

    :param many: the plural, where it is not `one` with an s.
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def project_name(name: str) -> str:
    """A project as lists show it: what was said in no project has a blank one."""
    return name or "(no project)"
