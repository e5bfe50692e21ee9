"""Split a survey of a configured source into its sources, each with its files. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from anamnesis_pipeline.model import FileStat, Source
from anamnesis_pipeline.parsing.text.file_names import HISTORY
from anamnesis_pipeline.sources.base import Survey, Wanted, record_above
from anamnesis_pipeline.sources.discovery import source_key
from anamnesis_pipeline.sources.document_selection import Chosen, Rules, chosen, names_of
from anamnesis_pipeline.sources.specs import DOCUMENTS, SourceSpec, document_source

HIDDEN_FOLDERS = (".[!cg]*", ".c[!l]*", ".cl[!a]*", ".g[!i]*", ".gi[!t]*")
"""Globs of hidden folders that are not entered; they exclude `.claude` and `.github`."""


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """A source in a survey; paths are relative to its folder."""

    source: Source
    files: tuple[FileStat, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """The sources with files in a survey, by key, and what was left out of them; `too_large` as in `Chosen`."""

    sources: Mapping[str, SourceFiles]
    left_out: Mapping[str, int] = field(default_factory=dict)
    too_large: frozenset[str] = frozenset()


def wanted_of(spec: SourceSpec, skip: tuple[str, ...], known: str = "") -> Wanted:
    """Return the request for the host of `spec`; `known`: the state of an earlier survey of the same spec."""
    if spec.kind != DOCUMENTS:
        return Wanted(spec.kind, spec.root, known)
    return Wanted(DOCUMENTS, spec.root, known, names_of(spec), (*skip, *HIDDEN_FOLDERS))


def found_in(spec: SourceSpec, survey: Survey, rules: Rules) -> Found:
    """Return the sources in a survey of `spec`: one for documents; for logs one per project folder, and the history.
    Sources without a file to read are left out.
    """
    if spec.kind != DOCUMENTS:
        return Found({found.source.key: found for found in _logs(spec, survey)})
    selection: Chosen = chosen(survey, spec, rules)
    source = document_source(spec, survey.root)
    files = {source.key: SourceFiles(source, selection.files)} if selection.files else {}
    return Found(files, selection.left_out, selection.too_large)


def _logs(spec: SourceSpec, survey: Survey) -> list[SourceFiles]:
    root = survey.root.rstrip("/") or "/"
    name = "" if spec.is_built_in else spec.name
    files = [file for file in survey.files or () if not file.path.startswith("../")]
    record = record_above(root).rpartition("/")[2]
    above = [replace(file, path=record) for file in survey.files or () if file.path == f"../{record}"]
    folders: dict[str, list[FileStat]] = {}
    is_folder_itself = any("/" not in file.path for file in files)  # its folders are sessions then, not projects
    for file in files:
        folder, _, path = file.path.partition("/")
        if is_folder_itself:
            folders.setdefault(".", []).append(file)
        else:
            folders.setdefault(folder, []).append(replace(file, path=path))
    keys = {folder: source_key(spec.machine, root, folder) for folder in sorted(folders)}
    found = [
        SourceFiles(Source(key, spec.machine, root, folder, spec=name), (*folders[folder], *above))
        for folder, key in keys.items()
    ]
    parent = root.rpartition("/")[0] or "/"
    history = Source(source_key(spec.machine, parent, HISTORY), spec.machine, parent, ".", "claude_history", name)
    histories = [replace(file, path=HISTORY) for file in survey.files or () if file.path == f"../{HISTORY}"]
    return [*found, *(SourceFiles(history, (file,)) for file in histories)]
