"""Convert the entries of a remote host to listings as the local host would make them of the same tree. Pure."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence

from anamnesis_pipeline.errors import SourceMissing, SourceUnreadable
from anamnesis_pipeline.model import FileStat
from anamnesis_pipeline.sources.base import (
    IGNORE_BYTES,
    IGNORE_FILES,
    Listing,
    Survey,
    Wanted,
    is_archived,
    target_inside,
)
from anamnesis_pipeline.sources.local import LEADS_UP, MAX_DEPTH, walk_order
from anamnesis_pipeline.sources.selection import Names
from anamnesis_pipeline.sources.specs import DOCUMENTS
from anamnesis_pipeline.sources.ssh.questions import Answer, Entry

_REASONS = {"m": "no such file or directory", "n": "it is a file, not a directory", "p": "permission denied"}


def survey_of(wanted: Wanted, answer: Answer) -> Survey | SourceUnreadable:
    """Return the survey of an answer."""
    if answer.error:
        return unreadable("folder", answer)
    if answer.entries is None or answer.state == wanted.known:
        return Survey(answer.root, None, answer.state or wanted.known)
    if wanted.kind == DOCUMENTS:
        return _documents(wanted, answer)
    listing = listing_of(answer)
    above = [entry.stat for entry in answer.entries if entry.stat.path.startswith("../")]
    files = sorted([*listing.files, *above], key=lambda file: file.path)
    return Survey(answer.root, tuple(files), answer.state, listing.problems)


def unreadable(what: str, answer: Answer) -> SourceUnreadable:
    """Return the error of an answer that has one."""
    return (SourceMissing if answer.error == "m" else SourceUnreadable)(
        f"cannot read the {what} {answer.root}: {_REASONS[answer.error]}; check the path and that this user may read it"
    )


def listing_of(answer: Answer) -> Listing:
    """Return the logs of a tree. Each folder counts once, for any number of links to it."""
    tree: dict[str, list[tuple[str, Entry]]] = defaultdict(list)
    here: set[tuple[int, int]] = set()
    for path, entry in {entry.stat.path: entry for entry in reversed(answer.entries or ())}.items():
        if path:
            folder, _, name = path.rpartition("/")
            tree[folder].append((name, entry))
        else:
            here.add((entry.stat.device, entry.stat.inode))
    problems = list(answer.problems)
    files = sorted(_walk(answer.root, tree, "", MAX_DEPTH, here, problems), key=lambda file: file.path)
    return Listing(tuple(files), tuple(dict.fromkeys(problems)))


def _walk(
    root: str,
    tree: dict[str, list[tuple[str, Entry]]],
    below: str,
    depth: int,
    seen: set[tuple[int, int]],
    problems: list[str],
) -> Iterator[FileStat]:
    for _, entry in sorted(tree.get(below, ()), key=lambda each: walk_order(each[0], is_link=each[1].kind in "lu")):
        path, identity = entry.stat.path, (entry.stat.device, entry.stat.inode)
        if entry.kind == "f":
            if is_archived(path):
                yield entry.stat
        elif entry.kind == "u":
            problems.append(f"{root}/{path}: {LEADS_UP}")
        elif depth <= 1:
            problems.append(f"{root}/{path}: deeper than {MAX_DEPTH} folders, not read")
        elif entry.kind == "x":
            problems.append(f"{root}/{path}: permission denied")
        elif identity not in seen:
            seen.add(identity)
            yield from _walk(root, tree, path, depth - 1, seen, problems)


def _documents(wanted: Wanted, answer: Answer) -> Survey:
    names, entries = Names(wanted.names), answer.entries or []
    inside = {path: target_inside(answer.real, target) for path, target in answer.targets.items() if answer.real}
    links = {path: target for path, target in inside.items() if target is not None}
    read = [e.stat for e in entries if e.kind == "f" or (e.kind == "s" and e.stat.path in links)]
    files = [file for file in read if file.path.rpartition("/")[2] in names]
    problems = [f"{answer.root}/{e.stat.path}: permission denied" for e in entries if e.kind == "x"]
    problems += [
        f"{answer.root}/{file.path}: larger than {IGNORE_BYTES >> 10} KB, not obeyed"
        for file in _patterns(entries)
        if file.size > IGNORE_BYTES
    ]
    repositories = sorted(e.stat.path.rpartition("/")[0] or "." for e in entries if e.kind == "g")
    skipped = sorted(e.stat.path for e in entries if e.kind == "o")
    return Survey(
        answer.root,
        tuple(sorted(files, key=lambda file: file.path)),
        answer.state,
        tuple(dict.fromkeys([*answer.problems, *problems])),
        answer.ignores,
        tuple(repositories),
        links,
        tuple(skipped),
    )


def unread_patterns(answer: Answer) -> list[FileStat]:
    """Return the ignore files whose text the answer should have but lacks."""
    return [
        file
        for file in _patterns(answer.entries or ())
        if 0 < file.size <= IGNORE_BYTES and file.path not in answer.ignores
    ]


def _patterns(entries: Sequence[Entry]) -> list[FileStat]:
    files = (entry.stat for entry in entries if entry.kind == "f")
    return [file for file in files if file.path.rpartition("/")[2] in IGNORE_FILES]


def state_of(answer: Answer) -> str:
    """Return a digest of everything found, 64 hex characters, if the host sent no digest."""
    digest = hashlib.sha256()
    for entry in sorted(answer.entries or (), key=lambda each: (each.stat.path, each.kind)):
        digest.update(f"{entry.kind}\0{entry.stat.path}\0{entry.stat.size}\0{entry.stat.mtime_ns}\0\0".encode())
    for path, text in sorted([*answer.ignores.items(), *answer.targets.items()]):
        digest.update(f"{path}\0{text}\0\0".encode())
    return digest.hexdigest()
