"""Configured sources: a root of logs or documents on one machine. Pure."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.model import Source, content_id
from anamnesis_pipeline.sources.discovery import PROJECTS, source_key
from anamnesis_pipeline.sources.ignore_patterns import Patterns

LOGS = "claude_logs"
DOCUMENTS = "documents"
CLAUDE_ROOT = "~/.claude"
FORMER_CLAUDE_DOCUMENTS = ("CLAUDE.md", "projects/*/memory/**/*.md", "plans/*.md")
CLAUDE_DOCUMENTS = (*FORMER_CLAUDE_DOCUMENTS, "agent-memory/**/*.md")
"""The memory files that Claude Code itself keeps in its folder; stored sources may name the former patterns."""
AGENT_MEMORIES = ("agent-memory", "agent-memory-local")
"""Folders in the `.claude` of a repository with the memory of its subagents."""
BUILT_IN = "local-"
"""Prefix of the names of sources that need no configuration."""
MEMORY = f"{BUILT_IN}memory"
"""Prefix of the names of sources with Claude Code's own files, under any folder name."""
AGENTS = f"{BUILT_IN}agents-"
"""Prefix of the names of sources with the memory of subagents."""

TOPICS = f"{BUILT_IN}topics"
"""Name of the source with the topics that are in the home: `<project>/<name>.md`."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
_WINDOWS = re.compile(r"[A-Za-z]:([\\/]|$)|\\\\|//")
_PLACE = re.compile(
    r"(?P<host>(?:[^@:/\s]+@)?(?:\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^@:/\s\[\]-][^@:/\s\[\]]*)(?::\d+)?)(?::(?P<root>.*))?"
)


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A configured source. A log spec gives one `Source` per Claude project folder, a document spec a single one.

    `host`: `user@host`, `user@host:port` or a name in `~/.ssh/config`; empty: this machine. `machine` is the name in
    results. `root` is absolute or begins with `~` on that machine. `include` and `exclude` are patterns as in a
    `.gitignore`, relative to the root; empty `include`: the default ones. For documents, `project` and `instance`
    override the detected ones. `interval_s`: seconds between two polls; None: the setting. The text of a `private`
    source is hidden unless the source is named, and is sent to no LLM on another machine.
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
    """Limit of a text or code file; other formats, such as PDF, may have 50 times as much."""

    @property
    def is_built_in(self) -> bool:
        """Return whether it exists without configuration."""
        return self.name.startswith(BUILT_IN)


def built_in_specs(log_roots: Sequence[Path], machine: str) -> list[SourceSpec]:
    """Return the specs of the setting `log_roots` alone: the logs in each root and Claude Code's files beside them."""
    specs = []
    for n, root in enumerate(log_roots):
        number = f"-{n + 1}" if n else ""
        specs.append(SourceSpec(f"{BUILT_IN}logs{number}", LOGS, str(root), machine=machine))
        if root.name == PROJECTS:
            specs.append(
                SourceSpec(f"{MEMORY}{number}", DOCUMENTS, str(root.parent), machine=machine, include=CLAUDE_DOCUMENTS)
            )
    return specs


def topic_spec(folder: Path, machine: str) -> SourceSpec:
    """Return the source with the topics of the home, without the indexes that are made of them."""
    return SourceSpec(TOPICS, DOCUMENTS, str(folder), machine=machine, include=("*/*.md",), exclude=("MEMORY.md",))


def private_logs_of(specs: Sequence[SourceSpec]) -> list[SourceSpec]:
    """Return the private log sources on this machine."""
    return [spec for spec in specs if spec.private and spec.kind == LOGS and not spec.host]


def agent_memory_specs(folders: Sequence[str], specs: Sequence[SourceSpec], machine: str) -> list[SourceSpec]:
    """Return one source for each folder of this machine with a subagent memory (`AGENT_MEMORIES`), except those inside
    a configured document source, whose rules count. They are private if logs of this machine are, since they may come
    from private sessions.
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
    """Return (host, root) of `[USER@HOST:]ROOT`; the host is empty for a local path, the root if only a host is given.
    A local path begins with `/`, `~` or `.`.

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
    """Return `root` if it is valid.

    :raises BadSetting: it is neither absolute nor begins with `~`, or is a Windows path, or `/` itself.
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
    """Return the default machine name: its host without the user, with the port if it has one."""
    return host.rpartition("@")[2].strip("[]").replace("]:", "-").replace(":", "-")[:60]


def default_name(machine: str, root: str, kind: str, taken: Collection[str]) -> str:
    """Return an unused name for a new source, from machine and folder."""
    folder = root.rstrip("/").rpartition("/")[2].lstrip("~.") or ("logs" if kind == LOGS else "files")
    folder = "logs" if kind == LOGS and folder == PROJECTS else folder
    wanted = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{machine}-{folder}").strip("-._")[:50] or "source"
    wanted = f"my-{wanted}" if wanted.startswith(BUILT_IN) else wanted
    numbered = (f"{wanted}-{n}" for n in range(2, len(taken) + 3))
    return wanted if wanted not in taken else next(name for name in numbered if name not in taken)


def check_specs(specs: Sequence[SourceSpec], built_in: Sequence[SourceSpec]) -> None:
    """Check that the specs can be configured together.

    :raises BadSetting: an invalid or repeated name, two with the same machine, root and kind, or a host with two names.
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
        kind = "logs" if spec.kind == LOGS else "documents"
        for what in (f"the name {spec.name!r}", f"what are {kind} in {spec.root} of {spec.machine}"):
            if other := seen.get(what):
                how = f"change that one with: anamnesis sources add ... --replace, or PUT /api/sources/{other}"
                if other.startswith(BUILT_IN):
                    how = "it needs no configuration and comes from the setting log_roots"
                raise BadSetting(f"{what} is taken by the source {other!r}; {how}")
            seen[what] = spec.name
    machines: dict[str, str] = {}
    for spec in [*built_in, *specs]:
        if machines.setdefault(spec.host, spec.machine) != spec.machine:
            raise BadSetting(
                f"{spec.host or 'this machine'} is called {machines[spec.host]!r} by other sources, not "
                f"{spec.machine!r}; one machine has one name in results"
            )


def document_source(spec: SourceSpec, root: str) -> Source:
    """Return the source of a document spec whose root is the absolute path `root`."""
    name = root.rstrip("/").rpartition("/")[2] or "root"
    return Source(source_key(spec.machine, root, f"{name}.documents"), spec.machine, root, ".", DOCUMENTS, spec.name)


def is_of(source: Source, spec: SourceSpec) -> bool:
    """Return whether a stored source comes from the current `spec`. A source of `log_roots` names no spec."""
    if source.machine != spec.machine:
        return False
    if spec.kind == LOGS and spec.is_built_in:
        # in this root, in its `projects`, or as the history beside it
        roots = {spec.root, f"{spec.root.rstrip('/')}/{PROJECTS}", str(Path(spec.root).parent)}
        return source.kind != DOCUMENTS and not source.spec and source.root in roots
    if source.spec != spec.name or (source.kind == DOCUMENTS) != (spec.kind == DOCUMENTS):
        return False
    return spec.root.startswith("~") or spec.kind == LOGS or source.root == _plain(spec.root)


def sources_named(name: str, sources: Iterable[Source], specs: Iterable[SourceSpec]) -> list[Source]:
    """Return the stored sources with this name: a configured one, as `sources list` shows it, or a key."""
    named = [spec for spec in specs if spec.name == name]
    return [s for s in sources if name in (s.key, s.spec) or any(is_of(s, spec) for spec in named)]


def with_machine(spec: SourceSpec, here: str) -> SourceSpec:
    """Return the spec with its machine name filled in."""
    return spec if spec.machine else replace(spec, machine=machine_of_host(spec.host) if spec.host else here)


def parse_place(text: str) -> tuple[str | None, str, int | None]:
    """Return (user, host, port) of `host`, `user@host`, `user@host:port` or `user@[IPv6 address]:port`.

    :raises BadSetting: it is none of these.
    """
    user, _, rest = text.strip().rpartition("@")
    host, _, port = rest.rpartition(":") if rest.count(":") == 1 or "]:" in rest else (rest, "", "")
    host = host.strip("[]")
    if not host or any(c.isspace() for c in text.strip()) or host.startswith("-") or not (port or "1").isdigit():
        raise BadSetting(f"a host over SSH is written host, user@host or user@host:port, not {text!r}")
    return user or None, host, int(port) if port else None


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
        f"go to an LLM on another machine. Add {open_name} again with --replace and "
        "--private, or with an --exclude for that folder"
    )
