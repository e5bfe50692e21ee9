"""The configured sources, stored as one setting `sources.<name>` each."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.model import Source, content_id
from anamnesis_pipeline.pipeline.host_clock import write_look
from anamnesis_pipeline.pipeline.projects import SEEN
from anamnesis_pipeline.settings import MAX_INTERVAL_S, MIN_INTERVAL_S
from anamnesis_pipeline.sources.ignore_patterns import check_patterns
from anamnesis_pipeline.sources.specs import (
    AGENT_MEMORIES,
    AGENTS,
    BUILT_IN,
    CLAUDE_DOCUMENTS,
    CLAUDE_ROOT,
    DOCUMENTS,
    FORMER_CLAUDE_DOCUMENTS,
    SourceSpec,
    built_in_specs,
    check_specs,
    is_of,
    private_logs_of,
    with_machine,
)
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.settings import SettingsRecords

STORED = "sources."
REMOVED = "removed_sources."
"""Prefix, then the name of a source that was removed or moved to another folder: whether it was private."""
MAX_FILE_BYTES = 1 << 30
MAX_SPECS = 1_000
_TEXT = r"^[^\x00-\x1f\x7f]*$"

WANTED = {
    "name": "letters, digits, `.`, `_` and `-`, at most 60, beginning with a letter or digit",
    "machine": "at most 60 characters",
    "root": "absolute or beginning with ~, without control characters: a relative one has no fixed place",
    "interval_s": f"whole seconds, from {MIN_INTERVAL_S} to {MAX_INTERVAL_S:,} (--interval)",
    "max_file_bytes": f"bytes, from 1 to {MAX_FILE_BYTES:,} (--max-mb)",
}
"""Field -> its valid values, for error messages."""

Text = Annotated[str, Field(max_length=200, pattern=_TEXT)]
Pattern = Annotated[str, Field(min_length=1, max_length=500, pattern=_TEXT)]


_ROOT = r"^[/~]" + _TEXT.removeprefix("^")


def _rooted(root: str) -> str:
    if not re.match(_ROOT, root):
        raise ValueError(f"should be {WANTED['root']}")
    return root


RootPath = Annotated[
    str,
    Field(min_length=1, max_length=4_096),
    AfterValidator(_rooted),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 4_096, "pattern": _ROOT}),
]
Host = Annotated[
    Text, Field(description="SSH host: `user@host`, `user@host:port` or a name of `~/.ssh/config`; empty: this machine")
]
Name = Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class SpecFields(BaseModel):
    """A configured source without its name."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: Annotated[Literal["claude_logs", "documents"], Field(description="What the folder holds")]
    root: Annotated[RootPath, Field(description="Absolute path of the folder, or one that begins with `~`")]
    host: Host = ""
    machine: Annotated[
        str,
        Field(max_length=60, pattern=_TEXT, description="Name of its machine in results; empty: the name of the host"),
    ] = ""
    include: Annotated[
        list[Pattern], Field(max_length=200, description="Patterns as in a .gitignore to read; empty: the default")
    ] = []
    exclude: Annotated[
        list[Pattern], Field(max_length=200, description="Patterns as in a .gitignore to leave out")
    ] = []
    project: Annotated[Text, Field(description="Project of all documents; empty: the name of their repository")] = ""
    instance: Annotated[Text, Field(description="Instance of all documents")] = ""
    interval_s: Annotated[
        Annotated[int, Field(ge=MIN_INTERVAL_S, le=MAX_INTERVAL_S)] | None,
        Field(description="Polling interval, in seconds; default: the setting `crawl_interval_s`"),
    ] = None
    private: Annotated[bool, Field(description="Hide its text unless named, and send it to no LLM elsewhere")] = False
    max_file_bytes: Annotated[
        int, Field(ge=1, le=MAX_FILE_BYTES, description="Max size of a text file, in bytes; other formats 50 times")
    ] = 1 << 20


class SpecModel(SpecFields):
    """A configured source, as it comes from people, clients and the store."""

    name: Annotated[Name, Field(description="Name of the source")]

    def spec(self) -> SourceSpec:
        """Return the `SourceSpec`."""
        values = self.model_dump()
        return SourceSpec(**values | {"include": tuple(self.include), "exclude": tuple(self.exclude)})


def spec_of_values(values: Mapping[str, Any]) -> SourceSpec:
    """Return the source that these values describe.

    :raises BadSetting: a value is invalid; the text names the field.
    """
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    try:
        return SpecModel.model_validate(plain).spec()
    except ValidationError as exc:
        error = exc.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, error["loc"])) or "source"
        wanted = WANTED.get(where) or error["msg"]
        raise BadSetting(f"{where} cannot be {plain.get(where)!r}: {wanted}") from exc


def stored_specs(settings: SettingsRecords) -> list[SourceSpec]:
    """Return the user-configured sources, by name. Fields that a newer version stored, and this one does not know, are
    left out.
    """
    rows = [value for _, value in sorted(settings.all(STORED).items())]
    specs = [spec_of_values({name: row[name] for name in row if name in SpecModel.model_fields}) for row in rows]
    return [replace(s, include=CLAUDE_DOCUMENTS) if s.include == FORMER_CLAUDE_DOCUMENTS else s for s in specs]


def all_specs(settings: SettingsRecords, log_roots: Sequence[Path], machine: str) -> list[SourceSpec]:
    """Return the built-in sources, then the user-configured ones, each with its machine's name."""
    return [*built_in_specs(log_roots, machine), *(with_machine(spec, machine) for spec in stored_specs(settings))]


def agent_memories(store: Store, machine: str) -> list[str]:
    """Return the memory folders of subagents, in or above the directories of sessions on this machine, and those read
    before, even if gone.
    """
    named = (name.removeprefix(SEEN) for name in store.settings.all(SEEN))
    above = {str(folder) for cwd in named if cwd.startswith("/") for folder in (cwd, *PurePosixPath(cwd).parents)}
    places = (f"{folder.rstrip('/')}/.claude/{name}" for folder in above for name in AGENT_MEMORIES)
    sources = store.files.sources()
    known = {source.root for source in sources if source.spec.startswith(AGENTS) and source.machine == machine}
    return sorted(known.union(filter(os.path.isdir, places)))


def put_specs(
    settings: SettingsRecords, specs: Sequence[SourceSpec], built_in: Sequence[SourceSpec], machine: str
) -> None:
    """Replace all user-configured sources. Data read from removed ones stays.

    :raises BadSetting: they contradict each other, or one is invalid; nothing has changed then.
    """
    if len(specs) > MAX_SPECS:
        raise BadSetting(f"{len(specs)} sources are more than {MAX_SPECS}; let one have several include patterns")
    for spec in specs:
        check_patterns([*spec.include, *spec.exclude])
    check_specs([with_machine(spec, machine) for spec in specs], built_in)
    new = {spec.name: spec for spec in specs}
    for former in stored_specs(settings):
        if former.name not in new:
            _forget(settings, former)
        elif _place(new[former.name]) != _place(former):
            _part_with(settings, former)  # its folder changed
    for spec in specs:
        settings.set(STORED + spec.name, _values(spec))


def put_spec(settings: SettingsRecords, spec: SourceSpec, built_in: Sequence[SourceSpec], machine: str) -> None:
    """Add a source, or replace the one of its name.

    :raises BadSetting: it contradicts another, or is invalid; nothing has changed then.
    """
    others = [other for other in stored_specs(settings) if other.name != spec.name]
    put_specs(settings, [*others, spec], built_in, machine)


def remove_spec(settings: SettingsRecords, name: str) -> SourceSpec:
    """Remove a source from crawling; what was read of it stays.

    :raises BadSetting: no user-configured source has that name.
    """
    found = {spec.name: spec for spec in stored_specs(settings)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise BadSetting(f"no source that can be removed is called {name!r}; those that can: {known}")
    _forget(settings, found[name])
    return found[name]


def private_sources(store: Store, machine: str) -> tuple[Source, ...]:
    """Return the private stored sources. A removed source keeps its last state; if that was not stored, it is
    private.
    """
    specs = [with_machine(spec, machine) for spec in stored_specs(store.settings)]
    former = store.settings.all(REMOVED)
    are_agents_private = bool(private_logs_of(specs))

    def is_private(source: Source) -> bool:
        if source.spec.startswith(BUILT_IN):
            return source.spec.startswith(AGENTS) and are_agents_private
        spec = spec_of_source(source, specs)
        return spec.private if spec is not None else bool(former.get(REMOVED + source.spec, True))

    return tuple(source for source in store.files.sources() if source.spec and is_private(source))


def spec_of_source(source: Source, specs: Sequence[SourceSpec]) -> SourceSpec | None:
    """Return the current configuration of a stored source; None: it has none any more."""
    return next((spec for spec in specs if is_of(source, spec)), None)


def _place(spec: SourceSpec) -> tuple[str, str, str]:
    return spec.host, spec.root, spec.kind


def _forget(settings: SettingsRecords, spec: SourceSpec) -> None:
    _part_with(settings, spec)
    settings.set(STORED + spec.name, None)


def _part_with(settings: SettingsRecords, spec: SourceSpec) -> None:
    """Note that a name's former source was private, if so; what was read of it stays."""
    settings.set(REMOVED + spec.name, spec.private or bool(settings.get(REMOVED + spec.name, False)))
    write_look(settings, spec.name, None)


def _values(spec: SourceSpec) -> dict[str, Any]:
    default = asdict(replace(SourceSpec("", "", ""), name="", kind="", root=""))
    kept = {name: value for name, value in asdict(spec).items() if value != default[name]}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in kept.items()}


# --- source roots ----------------------------------------------------------------------------------------

# Conversion of a list of folders into configured sources, one each. Pure.

_NO_NAME = re.compile(r"[^A-Za-z0-9]+")
_NAME_CHARS = 40


@dataclass(frozen=True, slots=True)
class Root:
    """A folder on the machine `host`; empty: this machine."""

    root: str
    host: str = ""


def specs_with_roots(stored: Sequence[SourceSpec], kind: str, roots: Sequence[Root]) -> list[SourceSpec]:
    """Return the configured sources after those of `kind` are replaced by these folders, without duplicates.

    A source of such a folder stays unchanged; others of the kind are dropped, except Claude Code's own memory on a
    machine, which came with its logs.
    """
    kept = [spec for spec in stored if spec.kind != kind or _is_memory(spec)]
    known = {Root(spec.root, spec.host): spec for spec in stored if spec.kind == kind}
    there = {Root(spec.root, spec.host) for spec in kept if spec.kind == kind}
    wanted = dict.fromkeys(Root(root.root.rstrip("/") or "/", root.host) for root in roots)
    new = [root for root in wanted if root not in there]
    return [*kept, *(known.get(root) or SourceSpec(_name(root), kind, root.root, root.host) for root in new)]


def _is_memory(spec: SourceSpec) -> bool:
    return spec.kind == DOCUMENTS and spec.root == CLAUDE_ROOT


def _name(root: Root) -> str:
    """Return the name of a new source: the folder's name and a unique suffix."""
    words = _NO_NAME.sub("-", root.root.rsplit("/", 1)[-1]).strip("-")[:_NAME_CHARS]
    return f"{words or 'root'}-{content_id(root.host, root.root)[:8]}"
