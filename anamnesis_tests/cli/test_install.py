"""Claude Code's files get our entries and lose them again, and nothing else in them changes."""

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from anamnesis_pipeline.cli.install import BACKUP, Wanted, run_install, run_uninstall
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.settings import Settings
from anamnesis_tests.support.hooks import EVENTS, SESSION

THEIRS: dict[str, Any] = {
    "model": "opus",
    "permissions": {"allow": ["Bash(make *)"], "deny": []},
    "hooks": {
        "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}],
        "PostToolUse": [{"matcher": "Write", "hooks": [{"type": "command", "command": "fmt", "args": ["x"]}]}],
        "Notification": [],
    },
    "unknown": {"größe": 1.5, "list": [1, [2, None]]},
}

FORMS = {
    "inline": '{\n    "model": "opus",\n    "permissions": {"allow": ["Bash(make *)",   "Read"], "deny": []}\n}\n',
    "one line": '{"model": "opus", "env": {"A": "b"}}',
    "compact": '{"env":{"A":"b"},"hooks":{"Stop":[{"hooks":[{"type":"command","command":"x"}]}]},"model":"opus"}\n',
    "tabs": '{\n\t"model": "opus",\n\t"hooks": {\n\t\t"Stop": [\n\t\t\t{"hooks": [{"type": "x"}]}\n\t\t]\n\t}\n}',
    "windows": '{\r\n  "model": "opus",\r\n  "n": [\r\n    1.50,\r\n    1e5\r\n  ]\r\n}\r\n',
    "mark": '\ufeff{\n  "gr\\u00f6\\u00dfe": "größe \\/ \\ud83d\\ude00",\n  "model": "opus"\n}\n\n',
    "leading comma": '{ "model" : "opus"\n, "big": 12345678901234567890123\n, "hooks" : { "Stop" : [ ] }\n}',
    "no events": '{\n  "model": "opus",\n  "hooks": {}\n}\n',
    "no groups": '{\n  "hooks": {"Stop": [], "SessionStart": [ ]},\n  "model": "opus"\n}\n',
    "no servers": '{\n  "model": "opus",\n  "mcpServers": {\n  }\n}\n',
    "servers": '{"mcpServers": {"other": {"command": "x"}}, "model": "opus"}',
    "twice": '{\n  "hooks": {"Stop": 1},\n  "hooks": {},\n  "model": "opus"\n}\n',
}
"""Texts of settings as people and other programs write them."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    user = tmp_path / "user"
    (user / ".claude").mkdir(parents=True)
    (user / "project").mkdir()
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(user / "project")
    for name in [name for name in os.environ if name.startswith("ANAMNESIS_")]:
        monkeypatch.delenv(name)
    return user


@pytest.fixture
def settings(home: Path, tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "memory")


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8-sig"))
    return found


@pytest.fixture
def paths(home: Path) -> list[Path]:
    """Of the user's settings, and of Claude Code's own."""
    return [home / ".claude/settings.json", home / ".claude.json"]


def write(path: Path, content: object, indent: int | str = 2) -> str:
    text = json.dumps(content, ensure_ascii=False, indent=indent) + "\n"
    path.write_text(text, encoding="utf-8")
    return text


def test_a_user_without_settings_gets_them(settings: Settings, home: Path) -> None:
    said = run_install(settings, Wanted())
    hooks = read(home / ".claude/settings.json")["hooks"]
    assert set(hooks) == set(EVENTS)
    server = read(home / ".claude.json")["mcpServers"]["anamnesis"]
    assert server == {"type": "http", "url": "http://127.0.0.1:3010/mcp?folder=${PWD:-}"}
    assert len(said) == 2


def test_install_twice_is_once_and_uninstall_gives_all_back(settings: Settings, paths: list[Path]) -> None:
    before = [write(paths[0], THEIRS), write(paths[1], {"numStartups": 5, "mcpServers": {"other": {"command": "x"}}})]
    run_install(settings, Wanted())
    once = [path.read_text() for path in paths]
    assert once != before
    assert [path.with_name(path.name + BACKUP).read_text() for path in paths] == before
    said = run_install(settings, Wanted())
    assert all(text.endswith("already") for text in said)
    assert [path.read_text() for path in paths] == once
    run_uninstall(settings, Wanted())
    assert [path.read_text() for path in paths] == before
    assert not list((settings.home / "hooks").iterdir())


@pytest.mark.parametrize("form", [*FORMS.values(), "{}", "{ }\n", "{\n}\n", "", "\n"], ids=repr)
def test_uninstall_gives_every_byte_back(settings: Settings, paths: list[Path], form: str) -> None:
    for path in paths:
        path.write_bytes(form.encode())
    run_install(settings, Wanted())
    assert set(read(paths[0])["hooks"]) >= set(EVENTS)
    assert read(paths[1])["mcpServers"]["anamnesis"]
    run_install(settings.model_copy(update={"port": 3999}), Wanted())
    assert "3999" in paths[0].read_text()
    run_uninstall(settings, Wanted())
    assert [path.read_bytes() for path in paths] == [form.encode()] * 2


@pytest.mark.parametrize("name", FORMS)
def test_uninstall_keeps_what_was_edited_since(settings: Settings, paths: list[Path], name: str) -> None:
    form = FORMS[name]
    for path in paths:
        path.write_bytes(form.encode())
    run_install(settings, Wanted())
    for path in paths:
        path.write_bytes(path.read_bytes().replace(b"opus", b"sonnet"))
    run_uninstall(settings, Wanted())
    for path in paths:
        after, wanted = path.read_bytes().decode(), form.replace("opus", "sonnet")
        assert json.loads(after.removeprefix("\ufeff")) == json.loads(wanted.removeprefix("\ufeff"))
        if name in {"inline", "one line", "compact", "tabs", "windows", "mark", "servers"}:  # nothing empty in them
            assert after == wanted


def test_first_copy_of_a_file_stays_and_is_given_back(settings: Settings, paths: list[Path]) -> None:
    path = paths[0]
    before = write(path, THEIRS)
    copy = path.with_name(path.name + BACKUP)
    run_install(settings, Wanted(hooks=True))
    copy.write_bytes(path.read_bytes())  # with our hooks in it, as former versions left it
    run_uninstall(settings, Wanted(hooks=True))
    assert path.read_text() == before
    copy.unlink(missing_ok=True)
    run_install(settings, Wanted(hooks=True))
    run_install(settings.model_copy(update={"port": 3999}), Wanted(hooks=True))
    assert copy.read_text() == before
    run_uninstall(settings, Wanted(hooks=True))
    write(path, {**THEIRS, "model": "sonnet"})
    run_install(settings, Wanted(hooks=True))
    run_uninstall(settings, Wanted(hooks=True))
    assert copy.read_text() == before
    assert read(path)["model"] == "sonnet"


def test_what_others_wrote_stays_in_its_place(settings: Settings, home: Path) -> None:
    path = home / ".claude/settings.json"
    write(path, THEIRS, indent="\t")
    run_install(settings, Wanted(hooks=True))
    after = read(path)
    assert list(after) == list(THEIRS)
    assert after["hooks"]["Stop"][0] == THEIRS["hooks"]["Stop"][0]
    assert len(after["hooks"]["Stop"]) == 2
    assert after["hooks"]["PostToolUse"] == THEIRS["hooks"]["PostToolUse"]
    assert '\n\t"model"' in path.read_text(encoding="utf-8")
    assert "größe" in path.read_text(encoding="utf-8")
    assert not (home / ".claude.json").exists()


def test_installed_hook_is_one_that_runs(settings: Settings, home: Path) -> None:
    run_install(settings, Wanted(hooks=True))
    for event, groups in read(home / ".claude/settings.json")["hooks"].items():
        (hook,) = groups[0]["hooks"]
        given = json.dumps({**SESSION, **EVENTS[event], "hook_event_name": event}).encode()
        command = [hook["command"], *hook["args"]]
        done = subprocess.run(command, input=given, capture_output=True, timeout=20, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert hook["args"][-1] == "http://127.0.0.1:3010"


def test_a_project_gets_its_own_files(settings: Settings, home: Path) -> None:
    run_install(settings, Wanted(project=True))
    assert read(home / "project/.claude/settings.local.json")["hooks"]
    assert read(home / "project/.mcp.json")["mcpServers"]["anamnesis"]
    assert not (home / ".claude/settings.json").exists()
    run_uninstall(settings, Wanted(project=True))
    assert [path for path in (home / "project").rglob("*") if path.is_file()] == []


def test_a_dry_run_changes_nothing(settings: Settings, home: Path) -> None:
    before = write(home / ".claude/settings.json", THEIRS)
    said = run_install(settings, Wanted(dry_run=True))
    assert all("would get" in text for text in said)
    added = [line for line in said[0].splitlines()[3:] if line.startswith(("+", "-"))]
    assert any("anamnesis_hook.py" in line for line in added)
    assert [line for line in added if line.startswith("-")] == ['-    "Notification": []']  # gets a comma
    assert "+  " in said[1]
    assert (home / ".claude/settings.json").read_text() == before
    assert sorted(path.name for path in home.iterdir()) == [".claude", "project"]
    assert not settings.home.exists()


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"hooks": []}', '{"hooks": {"Stop": {}}}', '{"hooks": {"Stop": [{}]}}', "null"]
)
def test_settings_that_are_broken_are_named_and_left_alone(settings: Settings, home: Path, text: str) -> None:
    path = home / ".claude/settings.json"
    path.write_text(text)
    for run in (run_install, run_uninstall):
        with pytest.raises(GiveUp, match=r"settings\.json"):
            run(settings, Wanted(hooks=True))
    assert path.read_text() == text
    assert sorted(p.name for p in path.parent.iterdir()) == ["settings.json"]


def test_another_server_and_the_plugin_are_left_alone(settings: Settings, paths: list[Path]) -> None:
    before = write(paths[1], {"mcpServers": {"anamnesis": {"command": "other", "args": []}}})
    with pytest.raises(GiveUp, match="another server"):
        run_install(settings, Wanted(mcp=True))
    run_uninstall(settings, Wanted(mcp=True))
    assert paths[1].read_text() == before
    write(paths[0], {"enabledPlugins": {"anamnesis@anamnesis": True}})
    with pytest.raises(GiveUp, match="plugin"):
        run_install(settings, Wanted(hooks=True))


def test_claude_code_itself_adds_the_server(settings: Settings, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    said = run_install(settings.model_copy(update={"api_token": SecretStr("s3cret")}), Wanted(mcp=True))
    assert "claude mcp add --scope user --transport http anamnesis" in said[1]
    assert "s3cret" not in "".join(said)
    assert not (home / ".claude.json").exists()


def test_no_token_is_written_anywhere(settings: Settings, home: Path) -> None:
    guarded = settings.model_copy(update={"api_token": SecretStr("s3cret")})
    said = run_install(guarded, Wanted())
    assert any("ANAMNESIS_API_TOKEN" in text for text in said)
    for path in (home / ".claude/settings.json", home / ".claude.json"):
        assert "s3cret" not in path.read_text()
    assert "${ANAMNESIS_API_TOKEN}" in (home / ".claude.json").read_text()


def test_rights_and_links_stay_as_they_are(settings: Settings, home: Path) -> None:
    dotfiles = home / "dotfiles.json"
    write(dotfiles, THEIRS)
    dotfiles.chmod(0o640)
    (home / ".claude/settings.json").symlink_to(dotfiles)
    run_install(settings, Wanted(hooks=True))
    assert (home / ".claude/settings.json").is_symlink()
    assert stat.S_IMODE(dotfiles.stat().st_mode) == 0o640
    assert set(read(dotfiles)["hooks"]) >= set(EVENTS)


def test_hook_before_actions_is_installed_on_request_only(home: Path, settings: Settings) -> None:
    path = home / ".claude" / "settings.json"
    run_install(settings, Wanted(hooks=True))
    assert "PreToolUse" not in read(path)["hooks"]
    run_install(settings, Wanted(actions=True))
    ((group,), others) = (read(path)["hooks"]["PreToolUse"], set(read(path)["hooks"]))
    assert group["matcher"] == "Edit|MultiEdit|Write|NotebookEdit|Bash"
    assert group["hooks"][0]["args"][-2] == "action"
    run_install(settings, Wanted(hooks=True))
    assert set(read(path)["hooks"]) == others == {*EVENTS, "PreToolUse"}
    run_uninstall(settings, Wanted(actions=True))
    assert set(read(path)["hooks"]) == set(EVENTS)
    run_install(settings, Wanted(actions=True))
    run_uninstall(settings, Wanted())
    assert not path.exists()


def test_hook_before_actions_goes_beside_the_plugin(home: Path, settings: Settings) -> None:
    path = home / ".claude" / "settings.json"
    path.write_text('{"enabledPlugins": {"anamnesis@x": true}}')
    run_install(settings, Wanted(actions=True))
    assert set(read(path)["hooks"]) == {"PreToolUse"}
