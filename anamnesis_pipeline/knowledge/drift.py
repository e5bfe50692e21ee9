"""Drift: what curated texts, notes and records claim of a project, and its known files do not hold.

A claim is reported only if the files are known well enough to say so; otherwise it counts as unknown. A function or
variable is missing if its name is nowhere in the code: one that is only used may be a library's.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache

from anamnesis_pipeline.knowledge.claims import Claim, ClaimKind, claims_of
from anamnesis_pipeline.knowledge.project_files import ProjectFolders, Tree, normal
from anamnesis_pipeline.model import RECORD_KIND, RESERVED_SOURCES, Episode, EpisodeFilter, Status
from anamnesis_pipeline.search.trust import Authority, authority_of
from anamnesis_pipeline.store.base import Store

STALE_INFO, STALE_WARNING = timedelta(days=60), timedelta(days=180)
MAX_TEXTS = 5_000
"""Curated sections, and notes and records, of a project that are checked, the newest."""
MAX_FINDINGS = 500
STALE = "stale"
"""Kind of a finding about the age of a text."""
_NOTED = ("note", "decision", "preference", "lesson", "fact", "procedure", "topic")
"""Types of notes and records that say how something is; errors say how it was."""


_DECLARED_IN = {
    ClaimKind.SCRIPT: ("package.json",),
    ClaimKind.TARGET: ("Makefile", "makefile", "GNUmakefile", "justfile"),
}


class Severity(StrEnum):
    """How much a finding counts."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


POINTS = {Severity.ERROR: 10, Severity.WARNING: 3, Severity.INFO: 1}
"""Severity -> what it takes from the score of 100."""
_SEVERITIES = {ClaimKind.DEPENDENCY: Severity.WARNING, ClaimKind.VARIABLE: Severity.WARNING}
_MISSING = {
    ClaimKind.PATH: "no such file or folder",
    ClaimKind.FUNCTION: "not in the code",
    ClaimKind.SCRIPT: "no package.json has this script",
    ClaimKind.TARGET: "no Makefile has this target",
    ClaimKind.DEPENDENCY: "no manifest has this package, and no code its name",
    ClaimKind.VARIABLE: "neither code nor configuration has it",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a text says and that does not hold.

    `kind`: a `ClaimKind`, or `stale`. `quote`: verbatim. `path` and `line`, from 1: where the text is; of notes empty
    and 0. `looked_at`: what speaks against it. `suggestion`: where it may have gone; empty: unknown.
    """

    project: str
    severity: Severity
    kind: str
    value: str
    episode_id: str
    quote: str
    path: str
    line: int
    problem: str
    looked_at: str
    suggestion: str
    at: datetime


@dataclass(frozen=True, slots=True)
class DriftReport:
    """What was checked of a project. `unknown`: claims of which too little is known; they are not reported."""

    project: str
    score: int
    findings: tuple[Finding, ...]
    texts: int
    claims: int
    unknown: int
    looked_at: tuple[str, ...]


def score_of(severities: Iterable[Severity]) -> int:
    """Return 100 less the points of each finding, at least 0."""
    return max(0, 100 - sum(POINTS[each] for each in severities))


def check_project(
    store: Store, folders: ProjectFolders, project: str, now: datetime, where: EpisodeFilter, *, functions: bool = True
) -> DriftReport:
    """Check what is claimed of a project.

    :param where: filter that its episodes pass, for what is private.
    :param functions: also check functions and classes.
    """
    texts = list(texts_of(store, project, where))
    findings, looked_at, claims, unknown = list[Finding](), dict[str, None](), 0, 0
    for text in texts:
        is_file = authority_of(text) is Authority.AUTHORITATIVE
        trees = folders.around(project, text.machine, text.path if is_file else "")
        looked_at |= dict.fromkeys(map(_named, trees))
        for claim in _claims(text.raw_exchange or text.summary):
            if claim.kind is ClaimKind.FUNCTION and not functions:
                continue
            verdicts = {holds(claim, tree, is_curated=is_file) for tree in trees}
            claims += 1
            unknown += verdicts != {False} and True not in verdicts
            if verdicts == {False}:
                moved = _moved_to(claim, trees, folders) if claim.kind is ClaimKind.PATH else ""
                findings.append(_finding(text, claim, trees, moved, is_file=is_file))
    findings += _stale(texts, now)
    order = list(Severity)
    findings.sort(key=lambda each: (order.index(each.severity), each.path, each.line, each.episode_id))
    score = score_of(each.severity for each in findings)
    return DriftReport(project, score, tuple(findings[:MAX_FINDINGS]), len(texts), claims, unknown, tuple(looked_at))


def texts_of(store: Store, project: str, where: EpisodeFilter) -> Iterator[Episode]:
    """Yield the texts of a project whose claims count: sections with authority, notes and records."""
    own = replace(where, projects=(project,))
    curated = store.episodes.page(replace(own, tags=("curated",)), MAX_TEXTS).items
    posted = store.episodes.page(replace(own, source=RESERVED_SOURCES[0], kinds=_NOTED), MAX_TEXTS).items
    records = store.episodes.page(replace(own, kinds=(RECORD_KIND,)), MAX_TEXTS).items
    yield from (each for each in curated if authority_of(each) is Authority.AUTHORITATIVE)
    noted = (each for each in records if set(_NOTED).intersection(each.tags))
    yield from (each for each in (*posted, *noted) if each.status == Status.ACTIVE)


def holds(claim: Claim, tree: Tree, *, is_curated: bool) -> bool | None:
    """Return whether a claim holds in a tree; None: too little is known of it. Pure.

    :param is_curated: the text is one of the project's own files; notes may mean other places.
    """
    if claim.kind is ClaimKind.PATH:
        return _path_holds(claim.value, tree, is_curated=is_curated)
    if claim.kind in _DECLARED_IN:
        return _declares(claim, tree, is_curated=is_curated)
    if tree.words is None:
        return None
    if claim.kind is ClaimKind.FUNCTION:
        return _has_function(claim.value, tree, tree.words)
    if claim.kind is ClaimKind.VARIABLE:
        return _has_variable(claim.value, tree.words)
    is_used = normal(claim.value) in (tree.packages or ()) or claim.value.replace("-", "_") in tree.words
    return is_used if tree.packages is not None else None


def _declares(claim: Claim, tree: Tree, *, is_curated: bool) -> bool | None:
    """Return whether the files that declare commands have one. A project without such a file has none."""
    names = tree.scripts if claim.kind is ClaimKind.SCRIPT else tree.targets
    if names is not None:
        return claim.value in names
    has_file = any(file in tree.places for file in _DECLARED_IN[claim.kind])
    return False if tree.is_whole and is_curated and not has_file else None


def _has_function(name: str, tree: Tree, words: frozenset[str]) -> bool | None:
    """Return whether code has a name; None for one of a module that is not the project's: `json.loads`."""
    owner, _, last = name.rpartition(".")
    if last in words:
        return True
    owner = owner.rpartition(".")[2]
    is_own = not owner or owner[0].isupper() or owner in tree.stems
    return False if is_own else None


def _path_holds(path: str, tree: Tree, *, is_curated: bool) -> bool | None:
    inside = tree.inside(path)
    if inside is None:
        return None
    if tree.ends(inside):
        return True
    if any(each == inside or each.endswith(f"/{inside}") for each in tree.gone):
        return False
    folder, _, name = inside.rstrip("/").rpartition("/")
    if tree.ignores(inside):
        return None
    is_first_known = bool(folder) and bool(tree.ends(inside.split("/")[0]))
    if tree.is_whole:
        return False if is_first_known or (is_curated and not inside.endswith("/")) else None
    siblings = tree.ends(folder) if folder else [""]
    ending = name.rpartition(".")[2]
    alike = (each for each in tree.files if each.endswith(f".{ending}"))
    is_told = not inside.endswith("/") and any(each.rpartition("/")[0] in siblings for each in alike)
    return False if is_told and (folder or is_curated) else None


def _has_variable(name: str, words: frozenset[str]) -> bool:
    """Return whether code names a variable, whole or as a prefix and a field: `SHOP_` and `port`."""
    parts = name.split("_")
    cuts = (("_".join(parts[:at]), "_".join(parts[at:])) for at in range(1, len(parts)))
    return name in words or any(f"{prefix}_" in words and rest.lower() in words for prefix, rest in cuts)


def _finding(text: Episode, claim: Claim, trees: Sequence[Tree], moved: str, *, is_file: bool) -> Finding:
    lines = text.metadata.get("lines")
    first = int(lines[0]) if isinstance(lines, list) and lines else 1
    return Finding(
        text.project,
        _SEVERITIES.get(claim.kind, Severity.ERROR),
        claim.kind,
        claim.value,
        text.episode_id,
        claim.quote,
        text.path if is_file else "",
        first + claim.line if is_file else 0,
        _MISSING[claim.kind],
        ", ".join(map(_named, trees)),
        moved,
        text.timestamp,
    )


def _moved_to(claim: Claim, trees: Sequence[Tree], folders: ProjectFolders) -> str:
    """Return the one file of the same name; empty: there is none, or several."""
    name = claim.value.rstrip("/").rpartition("/")[2]
    places = ((tree, path) for tree in trees for path in tree.places.get(name, ()))
    found = {path for tree, path in places if path in tree.files and folders.names(tree, path)}
    return found.pop() if len(found) == 1 else ""


def _named(tree: Tree) -> str:
    how = "files on disk" if tree.is_whole else "crawled files"
    return f"{len(tree.files):,} {how} in {f'{tree.machine}:' if tree.machine else ''}{tree.root}"


def _stale(texts: Sequence[Episode], now: datetime) -> Iterator[Finding]:
    """Yield the texts that are old and were never retrieved: of a file with several sections, the file."""
    files: dict[tuple[str, str], list[Episode]] = {}
    for text in texts:
        is_file = authority_of(text) is Authority.AUTHORITATIVE
        files.setdefault((text.machine, text.path) if is_file else ("", text.episode_id), []).append(text)
    for sections in files.values():
        newest = max(sections, key=lambda each: each.timestamp)
        age = now - newest.timestamp
        if age < STALE_INFO or any(each.retrieval_count or each.read_count for each in sections):
            continue
        severity = Severity.WARNING if age >= STALE_WARNING else Severity.INFO
        said = (newest.raw_exchange or newest.summary).strip().split("\n")[0][:200]
        path = newest.path if authority_of(newest) is Authority.AUTHORITATIVE else ""
        problem = f"{age.days} days old and never retrieved"
        yield Finding(
            newest.project,
            severity,
            STALE,
            path or "note",
            newest.episode_id,
            said,
            path,
            0,
            problem,
            "",
            "",
            newest.timestamp,
        )


@lru_cache(maxsize=4_096)
def _claims(text: str) -> list[Claim]:
    """Return the claims of a text, which most checks meet again unchanged."""
    return claims_of(text)
