"""Entries that `anamnesis install` writes into the files of Claude Code, and their detection. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.runtime.json_text import with_item, without

SCRIPT = "anamnesis_hook.py"
"""File name that identifies our hooks, in any folder."""
ACTION = "PreToolUse"
"""Event of the hook before actions, which is installed on request only."""
SERVER = "anamnesis"
MODULE = "anamnesis_pipeline"
PLUGIN_PREFIX = "anamnesis@"
EMPTY = "{}\n"
_BLANK = "\ufeff \t\r\n"

Settings = Mapping[str, Any]


class Entries(Protocol):
    """Our entries in a JSON file of Claude Code. Both methods leave the rest of the file unchanged.

    :raises GiveUp: the text is not in Claude Code's format.
    """

    def put_in(self, text: str, before: str = EMPTY) -> str:
        """Return the text with our current entries in place of former ones."""
        ...

    def taken_out(self, text: str, before: str = EMPTY) -> str:
        """Return the text without our entries and what they leave empty, unless that is in `before`."""
        ...


@dataclass(frozen=True, slots=True)
class Hooks:
    """Our hooks.

    :param plugin_hooks: the plugin's `hooks.json`, or its `actions.json`.
    :param python: interpreter of the script; :param url: the memory's address.
    :param events: those whose hooks of ours are replaced or taken out; None: all.
    """

    plugin_hooks: Settings
    python: str
    script: str
    url: str
    events: frozenset[str] | None = None

    def put_in(self, text: str, before: str = EMPTY) -> str:
        """Add our hooks after existing ones.

        :raises GiveUp: also if the plugin is enabled, which has the same hooks.
        """
        text = self.taken_out(text, before)
        settings = object_of(text)
        if plugin_enabled(settings) and ACTION not in self.plugin_hooks["hooks"]:
            raise GiveUp("the plugin is installed already, and brings the hooks along; nothing is changed")
        ours = {
            event: [_of_this_machine(group, self.python, self.script, self.url) for group in groups]
            for event, groups in self.plugin_hooks["hooks"].items()
        }
        if "hooks" not in settings:
            return with_item(text, [], ours, "hooks")
        for event, groups in ours.items():
            if event not in settings["hooks"]:
                text = with_item(text, ["hooks"], groups, event)
                continue
            for group in groups:
                text = with_item(text, ["hooks", event], group)
        return text

    def taken_out(self, text: str, before: str = EMPTY) -> str:
        """Return the text without our hooks, and without what this empties."""
        text = text if text.strip(_BLANK) else EMPTY
        had = _checked_hooks(object_of(before))
        while place := _first_of_ours(hooks := _checked_hooks(object_of(text)), self.events):
            event, group, hook = place
            path: list[str | int] = ["hooks", event, group, "hooks", hook]
            if len(hooks[event][group]["hooks"]) == 1:
                path = ["hooks", event, group]
                if len(hooks[event]) == 1 and event not in had:
                    path = ["hooks", event]
                    if len(hooks) == 1 and "hooks" not in object_of(before):
                        path = ["hooks"]
            text = without(text, path)
        return text


@dataclass(frozen=True, slots=True)
class Server:
    """Our MCP server."""

    entry: Settings

    def put_in(self, text: str, before: str = EMPTY) -> str:
        """Add our server after existing ones.

        :raises GiveUp: also if another server has our name.
        """
        text = self.taken_out(text, before)
        config = object_of(text)
        if SERVER in _checked_servers(config):
            raise GiveUp(
                f"it has another server called {SERVER!r}; remove it first, or add ours by hand (docs/guides/claude.md)"
            )
        if "mcpServers" in config:
            return with_item(text, ["mcpServers"], self.entry, SERVER)
        return with_item(text, [], {SERVER: self.entry}, "mcpServers")

    def taken_out(self, text: str, before: str = EMPTY) -> str:
        """Return the text without our server, and without an object that this empties."""
        text = text if text.strip(_BLANK) else EMPTY
        servers = _checked_servers(object_of(text))
        if not _is_our_server(servers.get(SERVER)):
            return text
        is_alone = len(servers) == 1 and "mcpServers" not in object_of(before)
        return without(text, ["mcpServers"] if is_alone else ["mcpServers", SERVER])


def object_of(text: str) -> dict[str, Any]:
    """Return the JSON object in a text; an empty text gives an empty object.

    :raises GiveUp: it is another value, or no JSON.
    """
    try:
        found = json.loads(text.removeprefix("\ufeff")) if text.strip(_BLANK) else {}
    except (ValueError, RecursionError) as exc:
        raise GiveUp(f"it is no JSON ({exc}); mend it first. Nothing is changed") from exc
    if not isinstance(found, dict):
        raise GiveUp("it holds no JSON object; mend it first. Nothing is changed")
    return found


def http_server(url: str, wants_token: bool) -> dict[str, Any]:
    """Return the entry of our HTTP server, with Claude Code's start folder and the token from its environment."""
    headers = {"headers": {"Authorization": "Bearer ${ANAMNESIS_API_TOKEN}"}} if wants_token else {}
    return {"type": "http", "url": f"{url}/mcp?folder=${{PWD:-}}", **headers}


def plugin_enabled(settings: Settings) -> bool:
    """Return whether the plugin is enabled."""
    enabled = settings.get("enabledPlugins")
    return isinstance(enabled, dict) and any(
        name.startswith(PLUGIN_PREFIX) and value is True for name, value in enabled.items()
    )


def _of_this_machine(group: Settings, python: str, script: str, url: str) -> dict[str, Any]:
    """Return a hook group with this Python; the plugin's commands search for one and end with the action."""
    hooks = [
        {**hook, "command": python, "args": ["-I", "-S", script, hook["command"].rpartition(" ")[2], url]}
        for hook in group["hooks"]
    ]
    return {**group, "hooks": hooks}


def _checked_hooks(settings: Settings) -> dict[str, list[dict[str, Any]]]:
    hooks: Any = settings.get("hooks", {})
    sound = isinstance(hooks, dict) and all(
        isinstance(groups, list) and all(isinstance(g, dict) and isinstance(g.get("hooks"), list) for g in groups)
        for groups in hooks.values()
    )
    if not sound:
        raise GiveUp("its `hooks` are not as Claude Code writes them; mend that first. Nothing is changed")
    return dict(hooks)


def _checked_servers(config: Settings) -> dict[str, Any]:
    servers = config.get("mcpServers", {})
    if not isinstance(servers, dict):
        raise GiveUp("its `mcpServers` is no object; mend that first. Nothing is changed")
    return servers


def _first_of_ours(
    hooks: Mapping[str, Sequence[Settings]], events: frozenset[str] | None
) -> tuple[str, int, int] | None:
    """Return the first of our hooks of these events: event, index of the group, index of the hook in it."""
    return next(
        (
            (event, group, number)
            for event, groups in hooks.items()
            for group, held in enumerate(groups)
            for number, hook in enumerate(held["hooks"])
            if (events is None or event in events) and _is_ours(hook)
        ),
        None,
    )


def _is_ours(hook: Any) -> bool:
    if not isinstance(hook, dict):
        return False
    args = hook.get("args")
    return isinstance(args, list) and any(
        isinstance(arg, str) and arg.replace("\\", "/").rpartition("/")[2] == SCRIPT for arg in args
    )


def _is_our_server(server: Any) -> bool:
    if not isinstance(server, dict):
        return False
    url, args = server.get("url"), server.get("args")
    over_http = isinstance(url, str) and url.partition("?")[0].endswith("/mcp")
    as_process = isinstance(args, list) and (MODULE in args or args[-1:] == ["mcp"])
    return over_http or as_process
