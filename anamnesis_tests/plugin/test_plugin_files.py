"""The plugin is one that Claude Code loads, and what it names is there."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.model import MEMORY_BEGINS, MEMORY_ENDS
from anamnesis_pipeline.parsing.claude_logs.own_calls import asks_memory
from anamnesis_pipeline.sidecar.mcp.definitions import ARGUMENTS

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "plugin"
SCRIPT = PLUGIN / "hooks/anamnesis_hook.py"
KEYS_OF = {
    "2.1.139": {
        "name",
        "version",
        "description",
        "author",
        "homepage",
        "repository",
        "license",
        "keywords",
        "dependencies",
        "commands",
        "agents",
        "skills",
        "hooks",
        "outputStyles",
        "mcpServers",
        "lspServers",
        "settings",
        "userConfig",
        "channels",
    },
}
"""Version of Claude Code -> the keys of a manifest that it takes; it refuses a plugin with any other."""
OPTION_KEYS_OF = {
    "2.1.139": {"type", "title", "description", "required", "default", "multiple", "sensitive", "min", "max"},
}
STANDARD = {"json", "os", "re", "sys", "threading", "http.client", "urllib.parse"}


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def front_matter(path: Path) -> str:
    return path.read_text(encoding="utf-8").split("---\n")[1]


def test_marketplace_names_the_plugin_where_it_is() -> None:
    market = read_json(ROOT / ".claude-plugin/marketplace.json")
    (entry,) = market["plugins"]
    manifest = read_json(ROOT / entry["source"] / ".claude-plugin/plugin.json")
    assert entry["name"] == manifest["name"] == "anamnesis"
    assert re.fullmatch(r"\d+\.\d+\.\d+", manifest["version"])
    assert f'version = "{manifest["version"]}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert [path.name for path in (PLUGIN / ".claude-plugin").iterdir()] == ["plugin.json"]
    assert {path.name for path in PLUGIN.iterdir()} == {".claude-plugin", ".mcp.json", "agents", "hooks", "skills"}


def test_settings_in_use_are_asked_for_and_the_token_is_secret() -> None:
    asked = read_json(PLUGIN / ".claude-plugin/plugin.json")["userConfig"]
    used = set(re.findall(r"user_config\.(\w+)", (PLUGIN / ".mcp.json").read_text(encoding="utf-8")))
    script = SCRIPT.read_text(encoding="utf-8")
    named = re.findall(r"CLAUDE_PLUGIN_OPTION_([A-Z_]+)", script)
    used |= {name.lower() for name in named if not name.endswith("_OPTION_")}
    assert used - {""} == set(asked)
    assert asked["api_token"]["sensitive"] is True
    assert all({"type", "title", "description"} <= field.keys() for field in asked.values())


def test_calls_of_the_plugins_server_are_recognized_as_our_own() -> None:
    (name,) = read_json(PLUGIN / ".mcp.json")["mcpServers"]
    tools = re.findall(r"mcp__\w+", front_matter(PLUGIN / "agents/memory.md"))
    assert tools
    for tool in tools:
        assert asks_memory(tool, {})
        assert tool.startswith(f"mcp__plugin_anamnesis_{name}__")
        assert tool.rpartition("__")[2] in ARGUMENTS


@pytest.mark.parametrize("path", [PLUGIN / "agents/memory.md", PLUGIN / "skills/recall/SKILL.md"], ids=lambda p: p.name)
def test_skill_and_agent_say_when_to_use_them(path: Path) -> None:
    front = front_matter(path)
    assert re.search(r"^name: \w+$", front, re.MULTILINE)
    assert "Use it" in front
    assert len(front) < 1_024


def test_the_script_needs_nothing_but_python_3_8() -> None:
    tree = ast.parse(SCRIPT.read_text(encoding="utf-8"), feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= STANDARD
    assert repr(MEMORY_BEGINS) in SCRIPT.read_text(encoding="utf-8"), "the block that the server writes"
    assert f'"{MEMORY_ENDS}"' in SCRIPT.read_text(encoding="utf-8")


def test_the_manifest_fits_the_oldest_client_that_readme_names() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    oldest = re.search(r"Claude\s+Code (2\.1\.\d+) or newer", readme)
    assert oldest
    manifest = read_json(PLUGIN / ".claude-plugin/plugin.json")
    assert manifest.keys() <= KEYS_OF[oldest[1]]
    assert {key for field in manifest["userConfig"].values() for key in field} <= OPTION_KEYS_OF[oldest[1]]
    assert {field["type"] for field in manifest["userConfig"].values()} <= {"string", "number", "boolean"}
    hooks = read_json(PLUGIN / "hooks/hooks.json")["hooks"]
    keys = {key for groups in hooks.values() for group in groups for hook in group["hooks"] for key in hook}
    assert keys <= {"type", "command", "timeout", "async"}
