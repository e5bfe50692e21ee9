"""The `anamnesis` command as a user meets it, on a home of its own."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import pytest

from anamnesis_pipeline.cli import app as cli
from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.runtime.conftest import wait_for
from anamnesis_tests.sidecar.conftest import model_folder
from anamnesis_tests.support.live_system import free_ports
from anamnesis_tests.support.samples import put

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An empty home, with ports on which nobody listens, and nothing else of ours in the environment."""
    for name in [name for name in os.environ if name.startswith("ANAMNESIS_")]:
        monkeypatch.delenv(name)
    port, dagster_port = free_ports(2)
    given = {"HOME": tmp_path / "home", "PORT": port, "DAGSTER_PORT": dagster_port, "LOCAL_ONLY": 1}
    return {"HOME": str(tmp_path / "user")} | {f"ANAMNESIS_{name}": str(value) for name, value in given.items()}


@pytest.fixture
def run_process(environment: dict[str, str]) -> Run:
    """Runs `anamnesis ...` as a process of its own, which takes seconds to start beside others."""

    def run(*arguments: str, module: str = "__main__", **extra: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", f"anamnesis_pipeline.{module}", *arguments],
            env=os.environ | environment | extra,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    return run


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    """Runs `anamnesis ...` in this process."""

    def run(*arguments: str, **extra: str) -> "subprocess.CompletedProcess[str]":
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setattr(sys, "argv", ["anamnesis", *arguments])
            for name, value in (environment | extra).items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                cli.main()
        return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), out.getvalue(), err.getvalue())

    return run


def test_command_line_loads_no_dagster_and_no_model_library() -> None:
    code = "import sys, anamnesis_pipeline.cli.app; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "anamnesis_pipeline.cli.app" in modules
    assert not {"dagster", "torch", "sentence_transformers", "transformers", "pandas"} & set(modules)


def test_help_lists_every_command(run: Run, run_process: Run) -> None:
    assert run("--version").stdout.startswith("anamnesis 0.")
    text = run_process("--help").stdout
    for command in ("up", "demo", "status", "search", "ingest", "config", "doctor", "model", "reembed"):
        assert f" {command} " in text


def test_search_before_anything_is_stored_says_what_to_do(run_process: Run) -> None:
    done = run_process("search", "webhook retries")
    assert done.returncode == 1
    assert done.stderr.startswith("anamnesis: the sidecar does not answer")
    assert "anamnesis up" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_looking_before_the_first_start_creates_nothing(run: Run, tmp_path: Path) -> None:
    status = json.loads(run("status", "--json").stdout)
    assert status["memory"] is None
    assert not status["sidecar"]["reachable"]
    assert not status["dagster"]["reachable"]
    listed = run("model").stdout
    assert listed.startswith("Model     all-MiniLM-L6-v2 (default)")
    assert "BAAI/bge-large-en-v1.5" in listed
    assert json.loads(run("model", "list", "--json").stdout)["spaces"] == []
    assert run("reembed").stdout.startswith("No re-embed is running.")
    assert not (tmp_path / "home").exists()


def test_config_tells_where_every_value_came_from(run: Run) -> None:
    rows = {line.split()[0]: line for line in run("config", ANAMNESIS_EMBED_CPU_PCT="50").stdout.splitlines()}
    assert rows["embed_cpu_pct"].split() == ["embed_cpu_pct", "50", "environment"]
    assert rows["model"].split()[-1] == "default"
    assert "(embed_cpu_pct, environment)" in rows["embedding"]


def test_cores_are_stored_and_shown_with_their_origin(run: Run) -> None:
    core = str(available_cores()[-1])
    assert run("config", "set", "embed_cores", core).returncode == 0
    rows = {line.split()[0]: line for line in run("config").stdout.splitlines()}
    assert rows["embed_cores"].split() == ["embed_cores", core, "stored"]
    assert f"cores {core}; there are" in rows["embedding"]
    assert "(embed_cores, stored)" in rows["embedding"]


def test_config_fits_100_columns(run: Run, tmp_path: Path) -> None:
    roots = ":".join(f"{tmp_path}/{letter * 60}" for letter in "abc")
    home = str(tmp_path / ("h" * 150))
    told = run("config", ANAMNESIS_LOG_ROOTS=roots, ANAMNESIS_HOME=home).stdout
    assert max(map(len, told.splitlines())) <= 100
    assert roots in "".join(line[24:].split("  ")[0].strip() for line in told.splitlines())
    assert home in "".join(line[24:].split("  ")[0].strip() for line in told.splitlines())


def test_a_stored_setting_wins_until_it_is_unset(run: Run) -> None:
    assert run("config", "set", "embed_queue_max", "40").returncode == 0
    stored = json.loads(run("config", "--json", ANAMNESIS_EMBED_QUEUE_MAX="50").stdout)["embed_queue_max"]
    assert stored == {"value": "40", "origin": "stored"}
    assert run("config", "unset", "embed_queue_max").stdout == "embed_queue_max is no longer stored\n"
    assert json.loads(run("config", "--json").stdout)["embed_queue_max"]["origin"] == "default"


def test_changed_hour_says_that_dagster_does_not_run(run: Run, environment: dict[str, str]) -> None:
    asked = run("config", "set", "ingest_hour", "6").stdout
    assert asked.startswith("ingest_hour is stored\nDagster reads the change within an hour, or at its next start: ")
    del environment["ANAMNESIS_DAGSTER_PORT"]  # then nothing says that what answers there is of this home
    does_not_run = "Dagster does not run; its next start reads the change.\n"
    assert run("config", "set", "ingest_hour", "7").stdout == f"ingest_hour is stored\n{does_not_run}"
    assert run("config", "set", "ingest_hour", "7").stdout == "ingest_hour is stored\n"
    assert run("config", "unset", "ingest_hour").stdout == f"ingest_hour is no longer stored\n{does_not_run}"


def test_token_is_never_shown(run: Run) -> None:
    assert "s3cret-token" not in run("config", ANAMNESIS_API_TOKEN="s3cret-token").stdout


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("config set embed_cpu_pct 400", "embed_cpu_pct"),
        ("config set embed_cores 4096", "4096"),
        ("config set colour red", "'colour' is not a setting"),
        ("config set openai_url notaurl", "openai_url must hold URLs"),
        ("config set ollama_urls http://ok:1,file:///x", "ollama_urls must hold URLs"),
        ("config set llm_daily_tokens -5", "greater than or equal to 0"),
        ("config set port 4000", "ANAMNESIS_PORT"),
        ("model use nobody/no-such-model", "no embedding model 'nobody/no-such-model'"),
        ("model drop nope-1", "no space 'nope-1'"),
        ("search x --since soon", "'soon' is not a time"),
        ("search x --since 2026-02 --until 2026-02", "until is exclusive"),
    ],
)
def test_refused_value_is_one_clear_line_and_not_stored(run: Run, command: str, message: str) -> None:
    done = run(*command.split())
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not [row for row in json.loads(run("config", "--json").stdout).values() if row["origin"] == "stored"]


def test_bad_environment_variable_is_named(run: Run) -> None:
    done = run("status", ANAMNESIS_PORT="http")
    assert done.returncode == 1
    assert "ANAMNESIS_PORT = 'http'" in done.stderr


def test_doctor_names_what_is_wrong_and_what_to_do(run: Run) -> None:
    done = run("doctor")
    assert done.returncode == 1
    assert "WRONG sidecar" in done.stdout
    assert "-> start it with: anamnesis up" in done.stdout
    assert "ok    python" in done.stdout
    assert "Claude Code has no folder" in done.stdout


def test_without_a_sidecar_a_model_is_used_in_the_store(run: Run, tmp_path: Path) -> None:
    model = model_folder(tmp_path / "tiny")
    used = run("model", "use", model)
    assert "Searches are answered from tiny-" in used.stdout  # the first space of a store lacks nothing
    assert "the sidecar does not answer" in used.stderr
    assert json.loads(run("config", "--json").stdout)["model"] == {"value": model, "origin": "stored"}


def test_without_a_sidecar_the_store_answers_by_keywords(run_process: Run, tmp_path: Path) -> None:
    write_log(tmp_path / "logs" / "-work-shop" / "5e551011-0000-4000-8000-000000000001.jsonl")
    logs = {"ANAMNESIS_LOG_ROOTS": str(tmp_path / "logs")}
    ingested = run_process("ingest", **logs)
    assert ingested.returncode == 0, ingested.stderr
    assert "Memory is up to date: 1 file, 2 episodes, " in ingested.stdout
    assert "Loading weights" not in ingested.stderr
    found = run_process("search", "marmalade", "invoice", **logs)
    assert found.returncode == 0, found.stderr
    assert "by keywords only" in found.stderr
    assert "marmalade" in found.stdout
    nothing = run_process("search", "zyxwvut", **logs)
    assert (nothing.returncode, nothing.stdout.splitlines()[0]) == (1, "Nothing found.")
    again = run_process("ingest", **logs)
    assert "0 episodes written" in again.stdout


def test_searches_are_reported_without_a_sidecar_too(run: Run, tmp_path: Path) -> None:
    nothing = run("queries")
    assert nothing.returncode == 1
    assert "nothing was asked" in nothing.stderr
    home = tmp_path / "home"
    home.mkdir()
    with closing(open_sqlite(home / "anamnesis.db", home / "index")) as store:
        store.queries.note("zeppelin hangar", {"project": "other"}, [], datetime.now(UTC))
    told = run("queries")
    assert told.stdout.startswith("1 search: 0 found something")
    assert "Of the latest 1 without an answer, 0 could have had one." in told.stdout
    assert "looked for words only" in told.stderr


def test_projects_list_offers_worktrees_and_join_merges_them(run: Run, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with closing(open_sqlite(home / "anamnesis.db", home / "index")) as store:
        for name in ("~/shop", "~/shop-worktrees/fix", "~/shop-worktrees/diary"):
            put(store, name, "x", kind="exchange", project=name)
        store.settings.set("config.private_projects", ["diary"])
    told = run("projects", "list").stdout
    gone = "These seem to be worktrees of ~/shop whose folders are gone:\n  ~/shop-worktrees/fix (by its path)\n"
    assert gone in told
    assert "To join them: anamnesis projects join '~/shop'" in told
    assert run("projects", "join", "~/shop").stdout == "~/shop-worktrees/fix joined to ~/shop: 1 episode changed\n"
    assert "also ~/shop-worktrees/fix" in run("projects", "list").stdout
    assert run("projects", "join", "~/shop", "--undo").stdout.startswith("~/shop-worktrees/fix parted from ~/shop")
    assert "is private and '~/shop' is not" in run("projects", "alias", "~/shop-worktrees/diary", "~/shop").stderr


READING = (
    "status; doctor; config; model; reembed; projects list; exclude list; uploads list; dead-letters list; "
    "dead-letters retry; search x; queries; export new.jsonl; backup new.backup; archive extract --all --to new; "
    "forget --project x; redact --rescan"
).split("; ")
WRITING = (
    "up; ingest; config set embed_cpu_pct 40; config unset embed_cpu_pct; sources list; sources add .; "
    "sources remove x; import log.jsonl; upload log.jsonl; model use all-MiniLM-L6-v2; projects alias a b; "
    "projects join a; "
    "exclude add --project x; summarize; backfill; value x"
).split("; ")


@pytest.mark.parametrize("home", ["log.jsonl/home", "/proc/self"])
@pytest.mark.parametrize("command", READING + WRITING)
def test_home_that_cannot_be_written_is_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.jsonl").write_text("{}\n")
    done = run(*command.split(), ANAMNESIS_HOME=home)
    told = done.stderr.splitlines()
    assert len(told) <= 1, told
    if command in WRITING or (home.startswith("log.jsonl") and command != "doctor"):
        assert done.returncode == 1
        assert told[0].startswith("anamnesis: ")
        assert home in told[0]


UNUSABLE = ("log.jsonl/home", "a/log.jsonl/b/home", "loop/home", "x" * 300, "/proc/home", "/proc/self")


@pytest.mark.parametrize("home", UNUSABLE)
@pytest.mark.parametrize("command", ["doctor", "status"])
def test_unusable_home_is_told_by_doctor_and_status(run: Run, tmp_path: Path, home: str, command: str) -> None:
    place = tmp_path / home
    (tmp_path / "a").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for folder in (tmp_path, tmp_path / "a"):
        (folder / "log.jsonl").write_text("{}\n")
    done = run(command, ANAMNESIS_HOME=str(place))
    assert done.returncode == 1
    told = [line for line in (done.stdout + done.stderr).splitlines() if str(place) in line and "cannot be " in line]
    assert len(told) == 1
    assert "set ANAMNESIS_HOME" in told[0]
    left = {path.name for path in tmp_path.iterdir()} - {"user"}
    assert left == {"a", "log.jsonl", "loop"}, "nothing is left of the look"


def test_status_of_memory_in_read_only_home_is_shown(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    open_sqlite(home / "anamnesis.db", home / "index").close()
    assert run("status").returncode == 0
    monkeypatch.setattr("tempfile.TemporaryFile", Mock(side_effect=OSError(errno.EROFS, "Read-only file system")))
    done = run("status")
    assert done.returncode == 1
    assert f"Problem   {home} cannot be written (Read-only file system)" in done.stdout
    assert "Memory    0 episodes" in done.stdout


def test_sidecar_says_in_one_line_that_home_cannot_be_written(run_process: Run) -> None:
    done = run_process(module="sidecar", ANAMNESIS_HOME="/proc/self")
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_ctrl_c_says_that_it_stopped(environment: dict[str, str]) -> None:
    salt = Path(environment["ANAMNESIS_HOME"]) / "redaction.salt"
    command = [sys.executable, "-m", "anamnesis_pipeline", "import", "-"]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=os.environ | environment, text=True, **pipes) as process:
        wait_for(lambda: salt.exists() or process.poll() is not None)  # it runs now, and waits for its input
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert said == "anamnesis: stopped by Ctrl-C; what was finished before is kept\n"


def write_log(path: Path, cwd: str = "/code/shop") -> None:
    """A session of one prompt and one answer, as Claude Code writes them."""
    path.parent.mkdir(parents=True)
    shared = {"sessionId": "5e551011-0000-4000-8000-000000000001", "cwd": cwd, "version": "2.0.0"}
    first, second = (f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2))
    prompt = {"type": "user", "uuid": first, "parentUuid": None, "timestamp": "2026-03-14T09:26:53.000Z"}
    reply = {"type": "assistant", "uuid": second, "parentUuid": first, "timestamp": "2026-03-14T09:27:10.000Z"}
    asked = {"role": "user", "content": "Why is the marmalade invoice charged twice?"}
    text = "The webhook handler retries without an idempotency key."
    answered = {"id": "msg_1", "role": "assistant", "model": "claude", "content": [{"type": "text", "text": text}]}
    records = [shared | prompt | {"message": asked}, shared | reply | {"message": answered}]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
