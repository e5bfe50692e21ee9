"""What `anamnesis install` writes into the files of Claude Code, and how its own entries are told from others. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from anamnesis_pipeline.errors import GiveUp

SCRIPT = "anamnesis_hook.py"
"""By which our hooks are recognized, wherever it lies."""
SERVER = "anamnesis"
MODULE = "anamnesis_pipeline"
PLUGIN_PREFIX = "anamnesis@"

Settings = Mapping[str, Any]


def with_hooks(settings: Settings, plugin_hooks: Settings, python: str, script: str, url: str) -> dict[str, Any]:
    """The settings with our hooks, as the plugin has them, behind those of others.

    :param plugin_hooks: the plugin's `hooks.json`.
    :param python: what runs the script; :param url: the memory's address.
    :raises GiveUp: the settings are not as Claude Code writes them, or the plugin is there already.
    """
    if plugin_enabled(settings):
        raise GiveUp("the plugin is installed already, and brings the hooks along; nothing is changed")
    bare = without_hooks(settings)
    hooks = {event: list(groups) for event, groups in bare.get("hooks", {}).items()}
    for event, groups in plugin_hooks["hooks"].items():
        hooks[event] = [*hooks.get(event, []), *(_of_this_machine(group, python, script, url) for group in groups)]
    return {**bare, "hooks": hooks}


def without_hooks(settings: Settings) -> dict[str, Any]:
    """The settings without our hooks; what only they were in is gone as well.

    :raises GiveUp: the settings are not as Claude Code writes them.
    """
    before = _checked_hooks(settings)
    if not any(_is_ours(hook) for groups in before.values() for group in groups for hook in group["hooks"]):
        return dict(settings)
    after = {event: _without_ours(groups) for event, groups in before.items()}
    kept = {event: groups for event, groups in after.items() if groups or not before[event]}
    rest = {name: value for name, value in settings.items() if name != "hooks"}
    return {name: (kept if name == "hooks" else rest[name]) for name in settings if name != "hooks" or kept}


def with_server(config: Settings, entry: Settings) -> dict[str, Any]:
    """An MCP configuration with our server.

    :raises GiveUp: it is not as Claude Code writes it, or has another server of this name.
    """
    servers = _checked_servers(config)
    if SERVER in servers and not _is_our_server(servers[SERVER]):
        raise GiveUp(f"it has another server called {SERVER!r}; remove that first, or add ours by hand (docs/mcp.md)")
    return {**config, "mcpServers": {**servers, SERVER: dict(entry)}}


def without_server(config: Settings) -> dict[str, Any]:
    """An MCP configuration without our server.

    :raises GiveUp: it is not as Claude Code writes it.
    """
    servers = _checked_servers(config)
    if not _is_our_server(servers.get(SERVER)):
        return dict(config)
    kept = {name: server for name, server in servers.items() if name != SERVER}
    return {name: (kept if name == "mcpServers" else value) for name, value in config.items()}


def http_server(url: str, wants_token: bool) -> dict[str, Any]:
    """Our server over HTTP, with the folder that Claude Code is started in, and the token from its environment."""
    headers = {"headers": {"Authorization": "Bearer ${ANAMNESIS_API_TOKEN}"}} if wants_token else {}
    return {"type": "http", "url": f"{url}/mcp?folder=${{PWD:-}}", **headers}


def plugin_enabled(settings: Settings) -> bool:
    """Whether the plugin is."""
    enabled = settings.get("enabledPlugins")
    return isinstance(enabled, dict) and any(
        name.startswith(PLUGIN_PREFIX) and value is True for name, value in enabled.items()
    )


def _of_this_machine(group: Settings, python: str, script: str, url: str) -> dict[str, Any]:
    def placed(arg: str) -> str:
        return script if arg.endswith(SCRIPT) else arg

    hooks = [{**hook, "command": python, "args": [*map(placed, hook["args"]), url]} for hook in group["hooks"]]
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


def _without_ours(groups: Sequence[Settings]) -> list[dict[str, Any]]:
    """A group that only ours were in goes with them; one that was empty before stays."""
    found = []
    for group in groups:
        kept = [hook for hook in group["hooks"] if not _is_ours(hook)]
        if kept or not group["hooks"]:
            found.append({**group, "hooks": kept})
    return found


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
