import os
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline import settings as settings_module
from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.settings import NOT_STORABLE, Ranking, Settings, check_storable, load, origins


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and an environment without any setting."""
    for name in [name for name in os.environ if name.startswith("ANAMNESIS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path))
    return tmp_path


def write(home: Path, text: str) -> None:
    (home / "config.toml").write_text(text, encoding="utf-8")


def test_stored_wins_over_environment_over_file_over_default(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hour(stored: dict[str, Any] | None = None) -> tuple[int, str]:
        row = next(row for row in origins(stored or {}) if row.name == "ingest_hour")
        assert load(stored).ingest_hour == row.value
        return row.value, row.origin

    assert hour() == (5, "default")
    write(home, "ingest_hour = 6")
    assert hour() == (6, "file")
    monkeypatch.setenv("ANAMNESIS_INGEST_HOUR", "7")
    assert hour() == (7, "environment")
    assert hour({"ingest_hour": 8}) == (8, "stored")


@pytest.mark.parametrize("where", ["file", "environment"])
def test_a_locked_environment_wins_over_what_is_stored(home: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    write(home, "ingest_hour = 6" + ("\nlock_env = true" if where == "file" else ""))
    if where == "environment":
        monkeypatch.setenv("ANAMNESIS_LOCK_ENV", "1")
    (home / "anamnesis_consolidate_hour").write_text("7", encoding="utf-8")
    monkeypatch.setenv("ANAMNESIS_SECRETS_DIR", str(home))
    stored = {"ingest_hour": 8, "consolidate_hour": 8, "idle_minutes": 9}
    found = load(stored)
    assert (found.ingest_hour, found.consolidate_hour) == (6, 7)
    assert found.idle_minutes == 9, "nobody else says it"
    told = {row.name: row.origin for row in origins(stored)}
    assert (told["ingest_hour"], told["consolidate_hour"], told["idle_minutes"]) == ("file", "secret", "stored")
    monkeypatch.setenv("ANAMNESIS_LOCK_ENV", "false")
    assert load(stored).ingest_hour == 8, "the environment lifts the lock of the file"


def test_what_opens_the_store_is_never_taken_from_it() -> None:
    assert load({"port": 1, "home": "/nowhere", "api_token": "x"}).port == 3010
    assert load({"a setting of another version": 1}) == load()
    for name in NOT_STORABLE:
        with pytest.raises(BadSetting, match=f"ANAMNESIS_{name.upper()}"):
            check_storable(name, "1")


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("PORT", "70000", "less than or equal to 65535"),
        ("PORT", "http", "valid integer"),
        ("PRECISION", "fp8", "'auto', 'bf16' or 'fp32'"),
        ("SUMMARIZER", "gpt", "'none'"),
        ("EMBED_CPU_PCT", "0", "greater than or equal to 1"),
        ("TIMEZONE", "Mars/Olympus", "'Europe/Berlin'"),
        ("TIMEZONE", "../etc", "'Europe/Berlin'"),
        ("LOCAL_ONLY", "perhaps", "boolean"),
        ("RANKING", "rank=1", "'rank' is no number of the ranking; these are: rrf_k, depth"),
    ],
)
def test_refused_value_names_its_setting(monkeypatch: pytest.MonkeyPatch, name: str, value: str, allowed: str) -> None:
    monkeypatch.setenv(f"ANAMNESIS_{name}", value)
    with pytest.raises(BadSetting) as refused:
        load()
    assert f"ANAMNESIS_{name} = '{value}'" in str(refused.value)
    assert allowed in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ingest_hour = 24", "config.toml: ingest_hour = 24"),
        ("log_roots = 5", "config.toml: log_roots = 5: .*folders"),
        ("log_roots = [1]", "config.toml: log_roots"),
        ("prot = 3010", "prot is not a setting; the settings are: allowed_hosts,"),
        ("[ranking]\nrrf = 3", "config.toml: ranking = .*'rrf' is no number of the ranking; these are: rrf_k, depth"),
        ("ranking = 3", "config.toml: ranking = 3: it has to be a table of numbers, e.g. ranking = {rrf_k = 40}"),
        ("[ranking]\nrrf_k = 0", "config.toml: ranking.rrf_k = 0: .*greater than or equal to 1"),
        ("[ranking]\nfloor = nan", "config.toml: ranking.floor = nan: .*finite"),
        ("home = '/x'", "set ANAMNESIS_HOME instead"),
        ("port = ", "cannot be read as TOML.*mend it"),
        ("port = " + "[" * 100_000, "cannot be read as TOML.*mend it"),
    ],
)
def test_a_mistake_in_the_file_says_where_it_is(home: Path, text: str, said: str) -> None:
    write(home, text)
    for read in (load, lambda: origins({})):
        with pytest.raises(BadSetting, match=said):
            read()


def test_a_bad_stored_value_is_told_from_the_environments() -> None:
    with pytest.raises(BadSetting, match="stored setting ingest_hour = 99"):
        load({"ingest_hour": 99})


def test_an_unknown_or_empty_variable_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_NO_SUCH_THING", "1")
    monkeypatch.setenv("ANAMNESIS_PORT", "")
    assert load().port == 3010
    assert {row.name: row.origin for row in origins({})}["port"] == "default"


@pytest.mark.parametrize("where", ["environment", "file", "mistyped"])
def test_the_token_is_never_printed(home: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    token = "s3cret-token-value"
    if where == "environment":
        monkeypatch.setenv("ANAMNESIS_API_TOKEN", token)
        monkeypatch.setenv("ANAMNESIS_PORT", "none")
    else:
        write(home, f"{'api_token' if where == 'file' else 'api_tokn'} = '{token}'\nport = 'none'")
    with pytest.raises(BadSetting) as refused:
        load()
    assert token not in str(refused.value)
    monkeypatch.delenv("ANAMNESIS_PORT", raising=False)
    write(home, f"api_token = '{token}'")
    assert token not in repr(load())
    assert {row.name: row.value for row in origins({})}["api_token"] == "***"
    monkeypatch.delenv("ANAMNESIS_API_TOKEN", raising=False)
    write(home, "api_token = 123456789")
    with pytest.raises(BadSetting) as refused:
        load()
    assert "123456789" not in str(refused.value), "one that is no text"


def test_paths_are_absolute_and_lists_of_any_form(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", "~/a::/b/../b")
    assert load().log_roots == (tmp_path / "a", Path("/b/../b"))
    monkeypatch.delenv("ANAMNESIS_LOG_ROOTS")
    write(home, "log_roots = ['/a', '/b']\nallowed_hosts = 'x.lan, y.lan'")
    assert load().log_roots == (Path("/a"), Path("/b"))
    assert load().allowed_hosts == ("x.lan", "y.lan")
    assert load({"log_roots": ["/c"]}).log_roots == (Path("/c"),)


def test_places_are_under_home_and_claudes_folder(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = load()
    places = [settings.database, settings.archive_dir, settings.index_dir, settings.dagster_home, settings.logs_dir]
    assert all(place.parent == home for place in places)
    assert len(set(places)) == 5
    monkeypatch.delenv("ANAMNESIS_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    assert (load().home, load().log_roots) == (tmp_path / "anamnesis", (tmp_path / "projects",))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("ingest_hour", "7", 7),
        ("local_only", "yes", True),
        ("model", "BAAI/bge-m3", "BAAI/bge-m3"),
        ("log_roots", "/a:/b", ["/a", "/b"]),
        ("value_weights", "fix=2, edits=0", {"fix": 2.0, "edits": 0.0}),
    ],
)
def test_value_to_store_is_checked_and_comes_back_the_same(name: str, text: str, value: Any) -> None:
    stored = check_storable(name, text)
    assert stored == value
    assert getattr(load({name: stored}), name) == (tuple(map(Path, value)) if name == "log_roots" else value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("ingest_hour", "24", "^ingest_hour = '24': Input should be less than or equal to 23$"),
        ("timezone", "Mars", "^timezone = 'Mars': not a time zone name"),
        ("model", "", "^model = '': .*at least 1 character"),
        ("value_weights", "fixed=2", "'fixed' is no rule of the value; the rules are: correction, one_error, .*turns"),
        ("value_weights", "fix", "^value_weights = .*valid number"),
        ("value_weights", "fix=-1", "greater than or equal to 0"),
        ("ranking", "rrf_k=0", "^ranking.rrf_k = '0': Input should be greater than or equal to 1$"),
        ("ranking.rrf_k", "30", "the numbers of the ranking are set together: ranking rrf_k=30"),
        ("prot", "1", "'prot' is not a setting.*port"),
    ],
)
def test_value_that_cannot_be_stored_says_why(monkeypatch: pytest.MonkeyPatch, name: str, text: str, said: str) -> None:
    for port in ("3010", "none"):  # the latter is wrong too, and of the environment
        monkeypatch.setenv("ANAMNESIS_PORT", port)
        with pytest.raises(BadSetting, match=said) as refused:
            check_storable(name, text)
        assert "none" not in str(refused.value)


def test_ranking_shows_each_number_with_its_origin(home: Path) -> None:
    write(home, "[ranking]\nrrf_k = 40")
    assert load().ranking.changed == {"rrf_k": 40}
    shown = {row.name: (row.value, row.origin) for row in origins({})}
    assert (shown["ranking.rrf_k"], shown["ranking.depth"]) == ((40, "file"), (30, "default"))
    stored = check_storable("ranking", "depth=50, company=0.5")
    assert stored == {"depth": 50, "company": 0.5}
    assert load({"ranking": stored}).ranking.changed == {"depth": 50}, "0.5 is the default"


def test_every_setting_is_described() -> None:
    assert all(info.description for info in (*Settings.model_fields.values(), *Ranking.model_fields.values()))
    assert Settings.model_fields.keys() >= settings_module.NOT_STORABLE


def test_secret_of_a_file_gives_way_to_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def token() -> tuple[str, str]:
        row = next(row for row in origins({}) if row.name == "api_token")
        given = load().api_token
        assert given is not None
        assert row.value == "***"
        return given.get_secret_value(), row.origin

    folder = home / "secrets"
    folder.mkdir()
    (folder / "anamnesis_api_token").write_text("from a file\n", encoding="utf-8")
    write(home, 'api_token = "from config.toml"')
    assert token() == ("from config.toml", "file")
    monkeypatch.setenv("ANAMNESIS_SECRETS_DIR", str(folder))
    assert token() == ("from a file", "secret")
    monkeypatch.setenv("ANAMNESIS_API_TOKEN", "from the environment")
    assert token() == ("from the environment", "environment")


@pytest.mark.parametrize("place", ["secrets", "config.toml"])
def test_value_to_store_is_checked_with_files(home: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("ANAMNESIS_BIND", "0.0.0.0")
    with pytest.raises(BadSetting, match="needs a token"):
        check_storable("ingest_hour", "7")
    if place == "secrets":
        monkeypatch.setenv("ANAMNESIS_SECRETS_DIR", str(home))
        (home / "anamnesis_api_token").write_text("from a file\n", encoding="utf-8")
    else:
        write(home, 'api_token = "from config.toml"')
    assert check_storable("ingest_hour", "7") == 7


@pytest.mark.parametrize("refused", ["secrets", "anamnesis_api_token"])
def test_a_secret_that_may_not_be_read_is_named(home: Path, monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    folder = home / "secrets"
    folder.mkdir()
    (folder / "anamnesis_api_token").write_text("from a file\n", encoding="utf-8")
    monkeypatch.setenv("ANAMNESIS_SECRETS_DIR", str(folder))
    # As for a user without the right, which whoever runs the tests may be above.
    monkeypatch.setattr("os.access", lambda place, mode: mode == os.F_OK or Path(place).name != refused)
    with pytest.raises(BadSetting, match=f"{refused} is not readable"):
        load()


def test_a_uri_with_its_password_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_MONGO_URI", "mongodb://u:hunter2@db/")
    assert "hunter2" not in repr(load()) + repr(origins({}))
    (row,) = [row for row in origins({}) if row.name == "mongo_uri"]
    assert row.value == "mongodb://u:***@db/"
