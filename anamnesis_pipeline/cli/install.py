"""`anamnesis install` and `uninstall`: hooks and MCP server in Claude Code's own files, instead of the plugin."""

import difflib
import json
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.git_hook import change_hook
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.runtime import claude_settings
from anamnesis_pipeline.runtime.claude_settings import Entries, Hooks, Server, object_of
from anamnesis_pipeline.runtime.dagster_home import bundled
from anamnesis_pipeline.runtime.up_lock import sidecar_in_use
from anamnesis_pipeline.settings import Settings, claude_projects_dir

BACKUP = ".before-anamnesis"
"""Ends the name of the copy of a file as it was before our entries were first put in; it is never overwritten."""
HOOK_FILES = "plugin/hooks"
HOOKS, ACTIONS = "hooks.json", "actions.json"


@dataclass(frozen=True, slots=True)
class Places:
    """The files of Claude Code that are written."""

    hooks: Path
    servers: Path


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to install or remove. Nothing named means both."""

    project: bool = False
    hooks: bool = False
    mcp: bool = False
    dry_run: bool = False
    actions: bool = False

    @property
    def both(self) -> bool:
        """Whether hooks and MCP server are meant, since nothing or both are named."""
        return self.hooks == self.mcp and (self.hooks or not self.actions)


OfProject = Annotated[bool, typer.Option("--project/--user", help="Settings of this project, or of the user.")]
OnlyHooks = Annotated[bool, typer.Option("--hooks", help="Only the hooks.")]
OnlyMcp = Annotated[bool, typer.Option("--mcp", help="Only the MCP server.")]
GitHook = Annotated[
    bool, typer.Option("--git-hook", help="Only the hook post-commit of this git repository, which tells its drift.")
]
HookActions = Annotated[
    bool,
    typer.Option(
        "--hook-actions", help="Only the hook before Edit, Write and Bash, which tells what was decided about them."
    ),
]
OnlySay = Annotated[bool, typer.Option("--dry-run", help="Only print the changes, as a diff.")]


def install(
    project: OfProject = False,
    hooks: OnlyHooks = False,
    mcp: OnlyMcp = False,
    hook_actions: HookActions = False,
    git_hook: GitHook = False,
    dry_run: OnlySay = False,
) -> None:
    """Add hooks and MCP server to the settings of Claude Code, if the plugin is not used. `<file>.before-anamnesis`
    keeps the first copy.
    """
    settings = settings_file.load()
    if git_hook:
        typer.echo(change_hook(Path.cwd(), settings.home, install=True, dry_run=dry_run))
    if not git_hook or hooks or mcp or hook_actions:
        typer.echo("\n".join(run_install(settings, Wanted(project, hooks, mcp, dry_run, hook_actions))))


def uninstall(
    project: OfProject = False,
    hooks: OnlyHooks = False,
    mcp: OnlyMcp = False,
    hook_actions: HookActions = False,
    git_hook: GitHook = False,
    dry_run: OnlySay = False,
) -> None:
    """Remove hooks and MCP server from the settings of Claude Code, and nothing else."""
    settings = settings_file.load()
    if git_hook:
        typer.echo(change_hook(Path.cwd(), settings.home, install=False, dry_run=dry_run))
    if not git_hook or hooks or mcp or hook_actions:
        typer.echo("\n".join(run_uninstall(settings, Wanted(project, hooks, mcp, dry_run, hook_actions))))


def places_of(project: bool) -> Places:
    """Of the user, or of the project in the working directory: there the hooks go into the settings that are not
    shared, since they name paths of this machine.
    """
    if project:
        return Places(Path.cwd() / ".claude" / "settings.local.json", Path.cwd() / ".mcp.json")
    folder = claude_projects_dir().parent
    state = folder / ".claude.json" if os.environ.get("CLAUDE_CONFIG_DIR") else Path.home() / ".claude.json"
    return Places(folder / "settings.json", state)


def run_install(settings: Settings, wanted: Wanted) -> list[str]:
    """Write our entries; returns what to say.

    :raises GiveUp: a file is not as Claude Code writes it, or cannot be written. It is unchanged then.
    """
    places, said = places_of(wanted.project), []
    named = {HOOKS: "hooks for recall and reading"} if wanted.hooks or wanted.both else {}
    named |= {ACTIONS: "the hook before actions"} if wanted.actions else {}
    for file, what in named.items():
        hooks = _hooks(settings, file)
        change = _planned(places.hooks, hooks, install=True)  # refuses before the script is written
        if not wanted.dry_run:
            _write(Path(hooks.script), (bundled(HOOK_FILES) / claude_settings.SCRIPT).read_bytes())
            _carry_out(change)
        said.append(_outcome(places.hooks, change, what, wanted.dry_run))
    if named and settings.api_token:
        said.append("the hooks take the token from ANAMNESIS_API_TOKEN: set it where Claude Code is started")
    if wanted.mcp or wanted.both:
        said += _add_server(settings, places, wanted)
    return said


def run_uninstall(settings: Settings, wanted: Wanted) -> list[str]:
    """Remove our entries, and nothing else; returns what to say.

    :raises GiveUp: a file is not as Claude Code writes it, or cannot be written. It is unchanged then.
    """
    places, said = places_of(wanted.project), []
    if wanted.actions:
        change = _planned(places.hooks, _hooks(settings, ACTIONS), install=False)
        if not wanted.dry_run:
            _carry_out(change)
        said.append(_outcome(places.hooks, change, "no hook of ours before actions", wanted.dry_run))
    if wanted.hooks or wanted.both:
        change = _planned(places.hooks, replace(_hooks(settings, HOOKS), events=None), install=False)
        if not wanted.dry_run:
            _carry_out(change)
            if not wanted.project:
                (settings.home / "hooks" / claude_settings.SCRIPT).unlink(missing_ok=True)
        said.append(_outcome(places.hooks, change, "no hooks of ours", wanted.dry_run))
    if wanted.mcp or wanted.both:
        change = _planned(places.servers, _server(settings), install=False)
        if not wanted.dry_run:
            _carry_out(change)
        said.append(_outcome(places.servers, change, "no MCP server of ours", wanted.dry_run))
    return said


def _hooks(settings: Settings, file: str) -> Hooks:
    """Return the hooks of a file of the plugin; those of its other files stay."""
    plugin_hooks = json.loads((bundled(HOOK_FILES) / file).read_text(encoding="utf-8"))
    script = settings.home / "hooks" / claude_settings.SCRIPT
    events = frozenset(plugin_hooks["hooks"])
    return Hooks(plugin_hooks, sys.executable, str(script), sidecar_in_use(settings), events)


def _server(settings: Settings) -> Server:
    return Server(claude_settings.http_server(sidecar_in_use(settings), wants_token=bool(settings.api_token)))


def _add_server(settings: Settings, places: Places, wanted: Wanted) -> list[str]:
    """In a project's file; for the user by Claude Code's own command if there is one, which owns that file."""
    url = sidecar_in_use(settings)
    if not wanted.project and shutil.which("claude"):
        token = ' --header "Authorization: Bearer $ANAMNESIS_API_TOKEN"' if settings.api_token else ""
        address = f"'{url}/mcp?folder=${{PWD:-}}'"
        line = f"claude mcp add --scope user --transport http anamnesis {address}{token}"
        return ["the MCP server is added by Claude Code itself:", f"  {line}"]
    change = _planned(places.servers, _server(settings), install=True)
    if not wanted.dry_run:
        _carry_out(change)
    return [_outcome(places.servers, change, "the MCP server", wanted.dry_run)]


@dataclass(frozen=True, slots=True)
class _Change:
    """A file's present and wanted content; None: no file. `keep`: keep a copy of the former."""

    path: Path
    before: str | None
    after: str | None
    keep: bool = False


def _planned(path: Path, entries: Entries, *, install: bool) -> _Change:
    """What putting our entries into a file, or taking them out, makes of it.

    A file that is as our entries made it of the kept copy becomes that copy again, byte for byte. One that is not was
    changed meanwhile: only our entries go. One that only ever held our entries goes.

    :raises GiveUp: it cannot be read, or is not as Claude Code writes it.
    """
    path = path.resolve()  # a link into dotfiles stays a link
    text, saved = _read(path), _read(_copy_of(path))
    try:
        if saved is not None and object_of(entries.taken_out(saved)) != object_of(saved):
            saved = None  # former versions overwrote it with a file that holds our entries
        as_saved = saved is not None and entries.taken_out(entries.put_in(saved, saved), saved)
    except GiveUp:
        saved, as_saved = None, False
    try:
        bare = entries.taken_out(text or "", saved or claude_settings.EMPTY)
        is_bare = object_of(text or "") == object_of(bare)
        if install:
            after = entries.put_in(text or "", saved or claude_settings.EMPTY)
            is_same = object_of(text or "") == object_of(after)
            return _Change(path, text, text if is_same else after, keep=text is not None and is_bare)
        if is_bare:
            return _Change(path, text, text)
        if bare == as_saved:
            return _Change(path, text, saved)
        return _Change(path, text, bare if saved is not None or object_of(bare) else None)
    except GiveUp as exc:
        raise GiveUp(f"{path}: {exc}") from exc


def _carry_out(change: _Change) -> None:
    """Write or remove the file, if it is still as it was.

    :raises GiveUp: it was changed meanwhile, or cannot be written.
    """
    if change.after == change.before:
        return
    copy = _copy_of(change.path)
    if change.keep and change.before is not None and not copy.exists():
        _write(copy, change.before.encode(), like=change.path)
    if _read(change.path) != change.before:
        raise GiveUp(f"{change.path} is being changed by another program; try again")
    if change.after is not None:
        _write(change.path, change.after.encode(), like=change.path)
        return
    try:
        change.path.unlink()
    except OSError as exc:
        raise GiveUp(f"{change.path} cannot be removed ({exc.strerror})") from exc


def _outcome(path: Path, change: _Change, what: str, dry_run: bool) -> str:
    if change.before == change.after:
        return f"{path} has {what} already"
    if not dry_run:
        return f"{path} now has {what}"
    before, after = ((text or "").splitlines() for text in (change.before, change.after))
    diff = difflib.unified_diff(before, after, str(path), str(path), lineterm="")
    return "\n".join([f"{path} would get {what}:", *diff])


def _copy_of(path: Path) -> Path:
    return path.with_name(path.name + BACKUP)


def _read(path: Path) -> str | None:
    """The text of a file with its byte order mark and line ends; None: there is no file."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise GiveUp(f"{path} cannot be read ({type(exc).__name__}); nothing is changed") from exc


def _write(path: Path, content: bytes, like: Path | None = None) -> None:
    """A file at once or not at all, with the rights of `like`, else the owner's alone.

    :raises GiveUp: it cannot be written.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if like is not None and like.exists():
            os.chmod(temporary, like.stat().st_mode & 0o7777)
        os.replace(temporary, path)
    except OSError as exc:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)
        raise GiveUp(f"{path} cannot be written ({exc.strerror}); nothing is changed") from exc
