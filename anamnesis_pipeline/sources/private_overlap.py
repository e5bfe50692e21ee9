"""Find sources that read folders of a private source on this machine. Pure."""

from collections.abc import Callable, Mapping, Sequence

from anamnesis_pipeline.sources.ignore_patterns import Patterns
from anamnesis_pipeline.sources.specs import SourceSpec


def private_overlaps(specs: Sequence[SourceSpec], root_of: Callable[[SourceSpec], str]) -> list[tuple[str, str]]:
    """Return pairs (name of a source that is not private, name of a private one) on one machine and of one kind whose
    folders are equal or nested, unless the first excludes the second's folder by a pattern.

    :param root_of: the absolute folder of a source, if known.
    """
    return [
        (open_one.name, private.name)
        for private in specs
        if private.private
        for open_one in specs
        if not open_one.private and (open_one.host, open_one.kind) == (private.host, private.kind)
        if _overlap(open_one, root_of(open_one), root_of(private))
    ]


def absolute_roots(specs: Sequence[SourceSpec], known: Mapping[str, str], homes: Mapping[str, str]) -> dict[str, str]:
    """Return name -> absolute folder. A folder that begins with `~` is unchanged if its machine's home is unknown.

    :param known: name -> absolute folder of sources seen before. `~` is the same for all sources of a machine.
    :param homes: host -> its home, for the hosts that were just asked.
    """
    homes = {host: home.rstrip("/") for host, home in homes.items()}
    for spec in specs:
        root, below = known.get(spec.name, ""), spec.root[1:].rstrip("/")
        if root and _is_of_home(spec.root) and root.endswith(below):
            homes.setdefault(spec.host, root.removesuffix(below))
    return {
        spec.name: known.get(spec.name)
        or (homes[spec.host] + spec.root[1:] if spec.host in homes and _is_of_home(spec.root) else spec.root)
        for spec in specs
    }


def _is_of_home(root: str) -> bool:
    return root == "~" or root.startswith("~/")


def _overlap(open_one: SourceSpec, root: str, private_root: str) -> bool:
    above, below = f"{root.rstrip('/')}/", f"{private_root.rstrip('/')}/"
    if not below.startswith(above):
        return above.startswith(below)
    inside = below.removeprefix(above)
    return not (inside and Patterns(open_one.exclude).cover(inside))


def overlap_text(open_name: str, private_name: str) -> str:
    """Return the message about such a pair."""
    return (
        f"{open_name} is not private, and reads what the private {private_name} reads as well: what it reads first may "
        f"go to an LLM on another machine. Add {open_name} anew with --replace and "
        "--private, or with an --exclude for that folder"
    )
