"""An overview of a project's code as it was crawled: files, signatures, dependencies; a tenth of the code, or less.

It is made of the outlines that are stored with the sections of code, so it is as fresh as the last crawl.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from typing_extensions import TypedDict

from anamnesis_pipeline.knowledge.project_files import MAX_SECTIONS, Tree, crawled_tree
from anamnesis_pipeline.model import EpisodeFilter, SegmentKind
from anamnesis_pipeline.parsing.documents.languages import CODE_FORMATS, format_of
from anamnesis_pipeline.pipeline.crawl import folder_of
from anamnesis_pipeline.search.token_estimate import cost
from anamnesis_pipeline.sources.specs import DOCUMENTS
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.memory_layers import CODE

SHARE = 10
"""The overview has at most this part of the tokens of the code."""
MAX_TOKENS = 100_000
PAGE = 200
CHARS_PER_TOKEN = 4
MAX_LINE_CHARS = 100
MAX_LISTED = 60
"""Packages, scripts and targets listed of each."""


@dataclass(slots=True)
class CodeFileOutline:
    """What is known of a file of code: the lines of its outlines, in the order of the file, and its size in tokens."""

    path: str
    sections: list[tuple[int, tuple[str, ...], bool]] = field(default_factory=list)
    """First line, lines of the outline, and whether it is the head of the file."""
    tokens: int = 0


class CodebaseOut(TypedDict):
    """An overview of one folder of a project. `tokens` is an estimate, as `code_tokens` of the code that it tells of;
    `detail`: `documented` (signatures with documentation), `signatures`, `names`, or `files` alone.
    """

    project: str
    machine: str
    root: str
    files: int
    code_tokens: int
    tokens: int
    detail: str
    text: str


_IMPORTS = "imports "
DETAILS = ("documented", "signatures", "names", "files")


def codebases_of(store: Store, where: EpisodeFilter, max_tokens: int) -> list[CodebaseOut]:
    """Return the overview of each folder of a project that was crawled and has code, by machine and folder.

    :param where: filter by the project, without what is hidden.
    :param max_tokens: of one overview; it has at most a tenth of its code, too.
    """
    roots = sorted(
        {
            (source.machine, folder_of(source).rstrip("/"))
            for source in store.files.sources()
            if source.kind == DOCUMENTS and source.key not in where.hidden_sources
        }
    )
    found: dict[tuple[str, str], dict[str, CodeFileOutline]] = {}
    project = where.projects[0] if where.projects else ""
    for machine, path, first_line, segments in _outlines(store, where):
        root = max((root for of, root in roots if of == machine and path.startswith(f"{root}/")), key=len, default="")
        file = found.setdefault((machine, root), {}).setdefault(path, CodeFileOutline(path.removeprefix(f"{root}/")))
        for kind, text in segments:
            if kind is SegmentKind.OUTLINE and format_of(path) in CODE_FORMATS:
                lines = tuple(text.split("\n"))
                file.sections.append((first_line, lines, lines[0].endswith(PurePosixPath(path).name)))
            elif kind is SegmentKind.CODE:
                file.tokens += len(text) // CHARS_PER_TOKEN
    return [
        _overview(project, machine, root, list(files.values()), crawled_tree(store, where, machine, root), max_tokens)
        for (machine, root), files in sorted(found.items())
    ]


def _outlines(store: Store, where: EpisodeFilter) -> Iterator[tuple[str, str, int, list[tuple[SegmentKind, str]]]]:
    """Yield machine, path, first line, and kind and text of each piece, of the sections of code."""
    cursor, read = None, 0
    while read < MAX_SECTIONS:
        page = store.episodes.page(replace(where, kinds=(CODE,)), PAGE, cursor)
        heads = {each.episode_id: each for each in page.items}
        for part in store.forgetting.parts(list(heads)):
            pieces = [(segment.kind, segment.text) for segment in part.segments]
            first = part.section.first_line if part.section else 0
            yield heads[part.part_id].machine, heads[part.part_id].path, first, pieces
        read, cursor = read + len(page.items), page.next_cursor
        if cursor is None:
            return


def _overview(
    project: str, machine: str, root: str, files: Sequence[CodeFileOutline], tree: Tree, max_tokens: int
) -> CodebaseOut:
    """Return the most detailed overview that fits. Pure."""
    code = sum(each.tokens for each in files)
    budget = min(max_tokens, code // SHARE)
    head = list(_head(project, machine, root, files, tree))
    text, detail = "", DETAILS[-1]
    for name in DETAILS:
        text, detail = "\n".join([*head, *_listing(files, name)]), name
        if cost(text) <= budget:
            break
    return {
        "project": project,
        "machine": machine,
        "root": root,
        "files": len(files),
        "code_tokens": code,
        "tokens": cost(text),
        "detail": detail,
        "text": text,
    }


def _head(project: str, machine: str, root: str, files: Sequence[CodeFileOutline], tree: Tree) -> Iterator[str]:
    yield f"# {project or root} on {machine}:{root}"
    yield f"{len(files)} files of code"
    own = {piece.partition(".")[0] for each in files for piece in each.path.split("/")}
    used = Counter(
        name for each in files for name in dict.fromkeys(_imports(each)) if name.partition(".")[0] not in own
    )
    if used:
        yield f"imports: {', '.join(f'{name} ({count})' for name, count in used.most_common(MAX_LISTED))}"
    for name, values in (("scripts", tree.scripts), ("targets", tree.targets)):
        if values:
            listed = sorted(values)
            more = f", and {len(listed) - MAX_LISTED} more" if len(listed) > MAX_LISTED else ""
            yield f"{name}: {', '.join(listed[:MAX_LISTED])}{more}"


def _listing(files: Sequence[CodeFileOutline], detail: str) -> Iterator[str]:
    """Yield the tree of folders and files, with what each defines."""
    folder = None
    for file in sorted(files, key=lambda each: (each.path.rpartition("/")[0], each.path)):
        parent, _, name = file.path.rpartition("/")
        if parent != folder:
            folder = parent
            yield f"{folder or '.'}/"
        told = list(_defined(file, detail)) if detail != "files" else []
        if detail == "names":
            yield f"  {name}{': ' if told else ''}{', '.join(dict.fromkeys(told))}"
            continue
        about = _about(file) if detail == "documented" else ""
        yield f"  {name}{f': {about}' if about else ''}"
        yield from (f"    {line}" for line in told)


def _imports(file: CodeFileOutline) -> Iterator[str]:
    for _, lines, is_head in file.sections:
        for line in lines if is_head else ():
            if line.startswith(_IMPORTS):
                yield from line.removeprefix(_IMPORTS).removesuffix(", …").split(", ")


def _about(file: CodeFileOutline) -> str:
    """Return what a file says of itself."""
    head = next((lines for _, lines, is_head in file.sections if is_head), ())
    return next((line for line in head[1:] if not line.startswith(("imports ", "constants ", "defines "))), "")


def _defined(file: CodeFileOutline, detail: str) -> Iterator[str]:
    """Yield what a file defines, in order."""
    for _, lines, is_head in sorted(file.sections):
        if is_head:
            listed = next((line for line in lines if line.startswith("defines ")), "")
            if detail == "names" and listed:
                yield from listed.removeprefix("defines ").split(", ")
            continue
        for line in lines:
            if detail == "documented":
                yield line[:MAX_LINE_CHARS]
            elif detail == "signatures":
                yield line.partition(": ")[0][:MAX_LINE_CHARS]
            else:
                yield line.strip().partition("(")[0].partition(":")[0].split(" ")[-1]
