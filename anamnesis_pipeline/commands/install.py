"""`anamnesis install` and `uninstall`: hooks and MCP server in Claude Code's own files, instead of the plugin."""

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from anamnesis_pipeline import claude_settings
from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.settings import Settings, claude_projects_dir
from anamnesis_pipeline.supervisor.dagster_home import bundled
from anamnesis_pipeline.supervisor.up_lock import sidecar_in_use

BACKUP = ".before-anamnesis"
"""Ends the name of the copy of a file as it was before the last change."""
HOOK_FILES = "plugin/hooks"

Change = Callable[[Mapping[str, Any]], dict[str, Any]]


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

    @property
    def both(self) -> bool:
        """Whether neither is named."""
        return self.hooks == self.mcp


OfProject = Annotated[bool, typer.Option("--project/--user", help="In this project, or in all of yours.")]
OnlyHooks = Annotated[bool, typer.Option("--hooks", help="Only the hooks.")]
OnlyMcp = Annotated[bool, typer.Option("--mcp", help="Only the MCP server.")]
OnlySay = Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")]


def install(
    project: OfProject = False, hooks: OnlyHooks = False, mcp: OnlyMcp = False, dry_run: OnlySay = False
) -> None:
    """Put hooks and MCP server into Claude Code's own settings, where the plugin is not used."""
    typer.echo("\n".join(run_install(settings_file.load(), Wanted(project, hooks, mcp, dry_run))))


def uninstall(
    project: OfProject = False, hooks: OnlyHooks = False, mcp: OnlyMcp = False, dry_run: OnlySay = False
) -> None:
    """Take them out again; nothing else is touched."""
    typer.echo("\n".join(run_uninstall(settings_file.load(), Wanted(project, hooks, mcp, dry_run))))


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
    places, url, said = places_of(wanted.project), sidecar_in_use(settings), []
    if wanted.hooks or wanted.both:
        script = settings.home / "hooks" / claude_settings.SCRIPT
        source = bundled(HOOK_FILES)
        plugin_hooks = json.loads((source / "hooks.json").read_text(encoding="utf-8"))

        def add(found: Mapping[str, Any]) -> dict[str, Any]:
            return claude_settings.with_hooks(found, plugin_hooks, sys.executable, str(script), url)

        changed = _change(places.hooks, add, dry_run=True)  # refuses before the script is written
        if not wanted.dry_run:
            _write(script, (source / claude_settings.SCRIPT).read_bytes())
            _change(places.hooks, add, dry_run=False)
        said.append(_outcome(places.hooks, changed, "hooks for recall and reading", wanted.dry_run))
        if settings.api_token:
            said.append("the hooks take the token from ANAMNESIS_API_TOKEN: set it where Claude Code is started")
    if wanted.mcp or wanted.both:
        said += _add_server(settings, places, wanted)
    return said


def run_uninstall(settings: Settings, wanted: Wanted) -> list[str]:
    """Remove our entries, and nothing else; returns what to say.

    :raises GiveUp: a file is not as Claude Code writes it, or cannot be written. It is unchanged then.
    """
    places, said = places_of(wanted.project), []
    if wanted.hooks or wanted.both:
        changed = _change(places.hooks, claude_settings.without_hooks, dry_run=wanted.dry_run)
        said.append(_outcome(places.hooks, changed, "no hooks of ours", wanted.dry_run))
        if not wanted.project and not wanted.dry_run:
            (settings.home / "hooks" / claude_settings.SCRIPT).unlink(missing_ok=True)
    if wanted.mcp or wanted.both:
        changed = _change(places.servers, claude_settings.without_server, dry_run=wanted.dry_run)
        said.append(_outcome(places.servers, changed, "no MCP server of ours", wanted.dry_run))
    return said


def _add_server(settings: Settings, places: Places, wanted: Wanted) -> list[str]:
    """In a project's file; for the user by Claude Code's own command if there is one, which owns that file."""
    url = sidecar_in_use(settings)
    if not wanted.project and shutil.which("claude"):
        token = ' --header "Authorization: Bearer $ANAMNESIS_API_TOKEN"' if settings.api_token else ""
        address = f"'{url}/mcp?folder=${{PWD:-}}'"
        line = f"claude mcp add --scope user --transport http anamnesis {address}{token}"
        return ["the MCP server is added by Claude Code itself:", f"  {line}"]
    entry = claude_settings.http_server(url, wants_token=bool(settings.api_token))
    changed = _change(places.servers, lambda found: claude_settings.with_server(found, entry), dry_run=wanted.dry_run)
    return [_outcome(places.servers, changed, "the MCP server", wanted.dry_run)]


def _outcome(path: Path, changed: bool, what: str, dry_run: bool) -> str:
    if not changed:
        return f"{path} has {what} already"
    return f"{path} {'would get' if dry_run else 'now has'} {what}"


def _change(path: Path, change: Change, *, dry_run: bool) -> bool:
    """Whether a JSON file is changed; what it was before is kept beside it. One that only ever held our entries goes.

    :raises GiveUp: it cannot be read or written, or `change` refuses it.
    """
    path = path.resolve()  # a link into somebody's dotfiles stays one
    before, text = _read(path)
    try:
        after = change(before)
    except GiveUp as exc:
        raise GiveUp(f"{path}: {exc}") from exc
    if after == before or dry_run:
        return after != before
    backup = path.with_name(path.name + BACKUP)
    is_ours = not any(after.values()) and not backup.exists()  # without a backup it held our entries alone
    if text and not is_ours:
        _write(backup, text.encode(), like=path)
    shown = json.dumps(after, ensure_ascii=False, indent=_indent(text)) + "\n"
    if _read(path)[1] != text:
        raise GiveUp(f"{path} is being changed by somebody else; try again")
    if is_ours:
        _remove(path)
    else:
        _write(path, shown.encode(), like=path)
    return True


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError as exc:
        raise GiveUp(f"{path} cannot be removed ({exc.strerror})") from exc


def _read(path: Path) -> tuple[dict[str, Any], str]:
    """The object in a file, and its text; a file that is not there holds an empty one."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return {}, ""
    except (OSError, UnicodeDecodeError) as exc:
        raise GiveUp(f"{path} cannot be read ({type(exc).__name__}); nothing is changed") from exc
    try:
        found = json.loads(text) if text.strip() else {}
    except ValueError as exc:
        raise GiveUp(f"{path} is no JSON ({exc}); mend it first. Nothing is changed") from exc
    if not isinstance(found, dict):
        raise GiveUp(f"{path} holds no JSON object; mend it first. Nothing is changed")
    return found, text


def _indent(text: str) -> int | str:
    """By what the first entry of a JSON text is indented; two spaces in a new one."""
    found = re.search(r"^[{\[]\n([ \t]+)", text)
    return 2 if found is None else found[1] if "\t" in found[1] else len(found[1])


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
