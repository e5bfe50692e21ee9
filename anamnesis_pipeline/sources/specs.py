"""What people configure to be crawled: a root of logs or documents on one machine. Pure."""

import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.model import Source, content_id
from anamnesis_pipeline.sources.discovery import PROJECTS, source_key

LOGS = "claude_logs"
DOCUMENTS = "documents"
CLAUDE_ROOT = "~/.claude"
FORMER_CLAUDE_DOCUMENTS = ("CLAUDE.md", "projects/*/memory/**/*.md", "plans/*.md")
CLAUDE_DOCUMENTS = (*FORMER_CLAUDE_DOCUMENTS, "agent-memory/**/*.md")
"""What Claude Code itself keeps in its folder to be remembered; stored sources may name the former patterns."""
AGENT_MEMORIES = ("agent-memory", "agent-memory-local")
"""Folders in the `.claude` of a repository with what its subagents remember."""
BUILT_IN = "local-"
"""The names of the sources that need no configuration begin so."""
AGENTS = f"{BUILT_IN}agents-"
"""The names of those with the memory of subagents begin so."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
_WINDOWS = re.compile(r"[A-Za-z]:([\\/]|$)|\\\\|//")
_PLACE = re.compile(
    r"(?P<host>(?:[^@:/\s]+@)?(?:\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^@:/\s\[\]-][^@:/\s\[\]]*)(?::\d+)?)(?::(?P<root>.*))?"
)


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A configured source. One of logs gives a `Source` per Claude project folder, one of documents a single one.

    `host` is where it is: `user@host`, `user@host:port` or a name of `~/.ssh/config`; empty: this machine. `machine` is
    the name in results. `root` is absolute or begins with `~`, of that machine. `include` and `exclude` are patterns as
    in a `.gitignore`, relative to the root; empty `include`: the default ones. Of documents, `project` and `instance`
    stand instead of what is found out. `interval_s`: seconds between two looks; None: the setting. The text of a
    `private` one is hidden unless it is named, and sent to no LLM on another machine.
    """

    name: str
    kind: str
    root: str
    host: str = ""
    machine: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    project: str = ""
    instance: str = ""
    interval_s: int | None = None
    private: bool = False
    max_file_bytes: int = 1 << 20
    """Of a text or code file; others, such as a PDF, may have 50 times as much."""

    @property
    def is_built_in(self) -> bool:
        """Whether it is there without any configuration."""
        return self.name.startswith(BUILT_IN)


def built_in_specs(log_roots: Sequence[Path], machine: str) -> list[SourceSpec]:
    """What the setting `log_roots` alone makes: the logs in each root, and what Claude Code keeps beside them."""
    specs = []
    for n, root in enumerate(log_roots):
        number = f"-{n + 1}" if n else ""
        specs.append(SourceSpec(f"{BUILT_IN}logs{number}", LOGS, str(root), machine=machine))
        if root.name == PROJECTS:
            specs.append(
                SourceSpec(
                    f"{BUILT_IN}memory{number}", DOCUMENTS, str(root.parent), machine=machine, include=CLAUDE_DOCUMENTS
                )
            )
    return specs


def private_logs_of(specs: Sequence[SourceSpec]) -> list[SourceSpec]:
    """Return the private sources of logs on this machine."""
    return [spec for spec in specs if spec.private and spec.kind == LOGS and not spec.host]


def agent_memory_specs(folders: Sequence[str], specs: Sequence[SourceSpec], machine: str) -> list[SourceSpec]:
    """One source for each folder of this machine in which subagents keep a memory (`AGENT_MEMORIES`), but for those
    that lie in a configured source of documents, whose rules count. They are private where logs of this machine are,
    since the sessions that led to them may be.
    """
    is_private = bool(private_logs_of(specs))
    roots = [os.path.expanduser(spec.root) for spec in specs if spec.kind == DOCUMENTS and not spec.host]
    covered = tuple(f"{root.rstrip('/')}/" for root in roots)
    return [
        SourceSpec(f"{AGENTS}{content_id(folder)[:8]}", DOCUMENTS, folder, "", machine, ("*.md",), private=is_private)
        for folder in sorted(set(folders))
        if not f"{folder}/".startswith(covered)
    ]


def place_and_root(text: str) -> tuple[str, str]:
    """(host, root) of `[USER@HOST:]ROOT`; the host is empty for a path of this machine, the root where only a host is
    named. A path of this machine begins with `/`, `~` or `.`.

    :raises BadSetting: it is neither.
    """
    text = text.strip()
    _refuse_windows(text)
    if text.startswith(("/", "~", ".")):
        return "", os.path.abspath(text) if text.startswith(".") else _plain(check_root(text))
    found = _PLACE.fullmatch(text)
    if found is None:
        raise BadSetting(
            f"{text!r} is no place; write /folder, ~/folder, host:/folder, user@host or user@host:port:/folder"
        )
    root = found["root"] or ""
    return found["host"], _plain(check_root(root)) if root else ""


def check_root(root: str) -> str:
    """`root`, if it can be one.

    :raises BadSetting: it is neither absolute nor begins with `~`, or is a path of Windows, or `/` itself.
    """
    _refuse_windows(root)
    if not root.startswith(("/", "~")) or "\x00" in root:
        raise BadSetting(f"the root {root!r} must be absolute or begin with ~; a relative one has no fixed place")
    if root.strip("/") == "":
        raise BadSetting(
            "the root / is a whole machine, devices and all; name the folders of it that are to be crawled"
        )
    return root


def _plain(root: str) -> str:
    return root.rstrip("/") or "/"


def _refuse_windows(path: str) -> None:
    if _WINDOWS.match(path):
        raise BadSetting(
            f"{path!r} is a path of Windows, which cannot be opened from here: write a drive of a Windows host as its "
            "SSH server does, /C:/Users/ann, and one of WSL as /mnt/c/Users/ann"
        )


def machine_of_host(host: str) -> str:
    """The name of a machine in results that was given none: its host without the user, and the port if it has one."""
    return host.rpartition("@")[2].strip("[]").replace("]:", "-").replace(":", "-")[:60]


def default_name(machine: str, root: str, kind: str, taken: Collection[str]) -> str:
    """A name for a new source, of machine and folder, that nobody has."""
    folder = root.rstrip("/").rpartition("/")[2].lstrip("~.") or ("logs" if kind == LOGS else "files")
    folder = "logs" if kind == LOGS and folder == PROJECTS else folder
    wanted = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{machine}-{folder}").strip("-._")[:50] or "source"
    wanted = f"my-{wanted}" if wanted.startswith(BUILT_IN) else wanted
    numbered = (f"{wanted}-{n}" for n in range(2, len(taken) + 3))
    return wanted if wanted not in taken else next(name for name in numbered if name not in taken)


def check_specs(specs: Sequence[SourceSpec], built_in: Sequence[SourceSpec]) -> None:
    """Whether these can be configured together.

    :raises BadSetting: a name is none or used twice, two have the same machine, root and kind, or one host two names.
    """
    seen: dict[str, str] = {}
    for spec in specs:
        if not _NAME.fullmatch(spec.name) or spec.is_built_in:
            raise BadSetting(
                f"{spec.name!r} cannot be the name of a source: letters, digits, `.`, `_` and `-`, at most 60, not "
                f"beginning with {BUILT_IN!r}"
            )
        check_root(spec.root)
    for spec in [*built_in, *specs]:
        for what in (f"the name {spec.name!r}", f"{_kind_text(spec.kind)} in {spec.root} of {spec.machine}"):
            if what in seen:
                raise BadSetting(f"{what} is taken by the source {seen[what]!r}; {_how_to_change(seen[what])}")
            seen[what] = spec.name
    _check_machines([*built_in, *specs])


def _how_to_change(name: str) -> str:
    if name.startswith(BUILT_IN):
        return "it needs no configuration and comes from the setting log_roots"
    return f"change that one with: anamnesis sources add ... --replace, or PUT /api/sources/{name}"


def _check_machines(specs: Sequence[SourceSpec]) -> None:
    names: dict[str, str] = {}
    for spec in specs:
        if names.setdefault(spec.host, spec.machine) != spec.machine:
            raise BadSetting(
                f"{spec.host or 'this machine'} is called {names[spec.host]!r} by other sources, not {spec.machine!r}; "
                "one machine has one name in results"
            )


def _kind_text(kind: str) -> str:
    return "what are logs" if kind == LOGS else "what are documents"


def document_source(spec: SourceSpec, root: str) -> Source:
    """The source of a spec of documents whose root is the absolute path `root`."""
    name = root.rstrip("/").rpartition("/")[2] or "root"
    return Source(source_key(spec.machine, root, f"{name}.documents"), spec.machine, root, ".", DOCUMENTS, spec.name)


def is_of(source: Source, spec: SourceSpec) -> bool:
    """Whether a stored source comes from `spec` as that is now. One of `log_roots` names no spec."""
    if source.machine != spec.machine:
        return False
    if spec.kind == LOGS and spec.is_built_in:
        return source.kind != DOCUMENTS and not source.spec and _holds(spec.root, source)
    if source.spec != spec.name or (source.kind == DOCUMENTS) != (spec.kind == DOCUMENTS):
        return False
    return spec.root.startswith("~") or spec.kind == LOGS or source.root == _plain(spec.root)


def sources_named(name: str, sources: Iterable[Source], specs: Iterable[SourceSpec]) -> list[Source]:
    """The stored sources that a name means: that of a configured one, as `sources list` shows it, or a key."""
    named = [spec for spec in specs if spec.name == name]
    return [s for s in sources if name in (s.key, s.spec) or any(is_of(s, spec) for spec in named)]


def _holds(root: str, source: Source) -> bool:
    """Whether a source of logs was found through this root: in it, in its `projects`, or as the history beside it."""
    return source.root in {root, f"{root.rstrip('/')}/{PROJECTS}", str(Path(root).parent)}


def with_machine(spec: SourceSpec, here: str) -> SourceSpec:
    """The spec with the name of its machine, where it was given none."""
    return spec if spec.machine else replace(spec, machine=machine_of_host(spec.host) if spec.host else here)
