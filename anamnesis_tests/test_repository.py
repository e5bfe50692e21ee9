"""What is in the repository may be published: no secrets, no weights, nobody's folders and addresses; it uses the
public parts of Dagster only, and hands on nothing that is for tests alone.
"""

import ast
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LARGEST_BYTES = 1 << 20
WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".onnx", ".gguf", ".h5", ".npy", ".npz", ".ckpt"}
MADE_UP_USERS = {"ann", "kim", "mira", "you", "anamnesis"}
MADE_UP_ADDRESSES = {"10.0.3.7", "10.1.2.3", "192.168.1.20"}
"""They stand in sentences that measure a model, and in examples."""

PRIVATE_PART = re.compile(r"\b(?:dagster|grpc)\w*\.(?:\w+\.)*_[a-z]\w*")
"""As in `dagster._core.test_utils`: in an import, on a command line, in a file of configuration."""

_HOME = re.compile(r"(?:/home|/Users|C:\\Users)[/\\]([A-Za-z][\w.-]*)")
_PRIVATE = re.compile(r"\b(?:10|192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2,3}\b")

in_a_checkout = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only a checkout knows what is published")


def published() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [path for name in listed.decode().split("\0") if name and (path := ROOT / name).is_file()]


@in_a_checkout
def test_nothing_published_is_large_or_weights_of_a_model() -> None:
    assert [str(p) for p in published() if p.suffix in WEIGHTS or p.stat().st_size > LARGEST_BYTES] == []


@in_a_checkout
def test_package_names_nobodys_home_and_no_private_address() -> None:
    found = []
    for path in published():
        if path.relative_to(ROOT).parts[0] in ("anamnesis_tests", "examples", "benchmarks") or path.suffix == ".png":
            continue
        text = path.read_text(encoding="utf-8")
        found += [f"{path}: {name}" for name in _HOME.findall(text) if name not in MADE_UP_USERS]
        found += [f"{path}: {address}" for address in _PRIVATE.findall(text) if address not in MADE_UP_ADDRESSES]
    assert found == []


def test_benchmarks_find_everything_that_they_import() -> None:
    """They take minutes and are run by hand."""
    folder = ROOT / "benchmarks"
    names = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__main__")
    assert len(names) > 10
    command = [sys.executable, "-W", "ignore", "-c", f"import {', '.join(names)}"]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr


_OF_NAMED_TUPLES = ("_replace", "_asdict", "_fields", "_make")
"""Public, by Python's documentation."""


def private_uses(code: str) -> list[str]:
    """What a Python file that knows Dagster or gRPC uses of their private parts: modules, names, attributes."""
    nodes = list(ast.walk(ast.parse(code)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [
        f"{node.module}.{alias.name}" for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    found = [name for name in names + texts if PRIVATE_PART.search(name)]
    if any(re.match(r"(?:dagster|grpc)(?:_\w+)?(?:\.|$)", name) for name in names):
        attributes = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr not in _OF_NAMED_TUPLES]
        private = [node for node in attributes if re.match(r"_[^_]", node.attr)]
        found += [ast.unparse(node) for node in private if ast.unparse(node.value) not in ("self", "cls")]
        found += [text for text in texts if re.fullmatch(r"_[a-z]\w+", text)]  # of setattr
    return found


DOCUMENTED_METHODS = frozenset(
    "ephemeral get local_temp fetch_materializations fetch_observations get_asset_keys get_asset_records "
    "get_latest_materialization_code_versions get_latest_materialization_event get_status_by_partition has_asset_key "
    "report_runless_asset_event wipe_assets delete_run get_run_by_id get_run_record_by_id get_run_records "
    "fetch_run_status_changes add_dynamic_partitions delete_dynamic_partition get_dynamic_partitions "
    "has_dynamic_partition".split()
)
"""Of `DagsterInstance`, by its page of the API documentation. Its other methods are public by the letter only."""
STATES_FOR_TESTS = frozenset(
    "add_run all_logs create_run_for_job from_config get_latest_asset_check_evaluation_record "
    "get_materialized_partitions report_run_canceling report_run_failed "
    "compute_log_manager run_coordinator run_launcher".split()
)
"""What tests need beside them: runs in every state, what came of them, and what a dagster.yaml loads."""


def undocumented_uses(code: str) -> list[str]:
    """What a Python file that knows Dagster asks of an instance that the documentation does not have."""
    nodes = list(ast.walk(ast.parse(code)))
    if not any(isinstance(node, ast.Import | ast.ImportFrom) and "dagster" in ast.unparse(node) for node in nodes):
        return []
    asked = [node for node in nodes if isinstance(node, ast.Attribute) and _is_instance(node.value)]
    found = [ast.unparse(node) for node in asked if node.attr not in DOCUMENTED_METHODS]
    # The value of an enumeration that Dagster keeps to itself, from one that it handed out.
    calls = [node.func for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Call)]
    return found + [ast.unparse(call) for call in calls if ast.unparse(call.func) == "type"]


def _is_instance(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in ("instance", "inst", "DagsterInstance")


@in_a_checkout
def test_instances_are_asked_by_documented_methods_only() -> None:
    found = []
    for path in published():
        if path == Path(__file__) or path.suffix != ".py":
            continue
        uses = undocumented_uses(path.read_text(encoding="utf-8"))
        if path.relative_to(ROOT).parts[0] == "anamnesis_tests":
            uses = [use for use in uses if use.rpartition(".")[2] not in STATES_FOR_TESTS]
        found += [f"{path.relative_to(ROOT)}: {use}" for use in uses]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "context.instance.run_storage",
        "instance.event_log_storage.free_concurrency_slots_for_run(run_id)",
        "instance.run_launcher.check_run_worker_health(run)",
        "self.instance.update_backfill(backfill)",
        "context.instance.report_run_failed(run)",
        'backfill.with_status(type(backfill.status)("CANCELING"))',
    ],
)
def test_undocumented_use_of_an_instance_is_found(code: str) -> None:
    assert len(undocumented_uses(f"import dagster as dg\n{code}")) == 1
    assert undocumented_uses(code) == [], "of a file that does not know Dagster"


@in_a_checkout
def test_dagster_is_used_by_its_public_parts_only() -> None:
    found = []
    for path in published():
        if path == Path(__file__) or path.suffix in (".png", ".md"):
            continue
        text = path.read_text(encoding="utf-8")
        uses = private_uses(text) if path.suffix == ".py" else PRIVATE_PART.findall(text)
        found += [f"{path.relative_to(ROOT)}: {use}" for use in uses]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "from dagster._core.launcher import WorkerStatus",
        "import dagster_graphql.test._private",
        "from grpc import _common",
        'command = ["-m", "dagster._daemon"]',
        "import dagster as dg\nsensor._evaluation_fn = evaluate",
        "import dagster as dg\nmonkeypatch.setattr(storage, '_has_instigators_table', True)",
    ],
)
def test_use_of_a_private_part_of_dagster_is_found(code: str) -> None:
    assert len(private_uses(code)) == 1


def test_the_scan_of_make_check_stops_a_planted_key(tmp_path: Path) -> None:
    """The very command that `make check` runs, over a repository of one file."""
    (line,) = [line for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines() if "secrets-hook" in line]
    command = line.strip().replace("$(BIN)", str(Path(sys.executable).parent)).replace("$$", "$")
    git = shutil.which("git")
    assert git is not None
    subprocess.run([git, "init", "-q", str(tmp_path)], check=True)
    planted = tmp_path / "settings.py"

    def scanned(text: str) -> int:
        planted.write_text(text, encoding="utf-8")
        subprocess.run([git, "add", "-A"], cwd=tmp_path, check=True)
        return subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, check=False).returncode

    assert scanned("REGION = 'eu-central-1'\n") == 0
    assert scanned("KEY = 'AKIA" + "2E0A8F3B244C9986'\n") != 0


# --- what tests are run with is not handed on ---------------------------------------------------------------------

TESTS_ONLY = "secantusdb"
"""GPL-2.0: tests start it as a server."""


def required(extra: str) -> list[str]:
    """What pyproject.toml asks for, as the image's build reads it."""
    command = [sys.executable, str(ROOT / "deploy/requirements.py"), str(ROOT / "pyproject.toml"), extra]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def brought_by(lines: list[str]) -> set[str]:
    """All that these requirements bring, and what those bring, as far as it is installed here."""
    found: set[str] = set()
    asked = [Requirement(line.partition("  #")[0]) for line in lines]
    while asked:
        one = asked.pop()
        name = canonicalize_name(one.name)
        if name not in found:
            found.add(name)
            with suppress(metadata.PackageNotFoundError):  # an optional one that is not here
                needed = [Requirement(line) for line in metadata.requires(name) or ()]
                extras = [{"extra": extra} for extra in ("", *one.extras)]
                asked += [each for each in needed if not each.marker or any(map(each.marker.evaluate, extras))]
    return found


@pytest.mark.parametrize("extra", ["", "containers", "kubernetes"])
def test_nothing_installed_or_shipped_needs_the_tests_server(extra: str) -> None:
    brought = brought_by(required(extra))
    assert {"pymongo", "bcrypt"} <= brought, "also what is not asked for by name"
    assert TESTS_ONLY not in brought
    assert TESTS_ONLY in brought_by(required("dev"))


@in_a_checkout
def test_only_tests_name_the_tests_server() -> None:
    named = {path.relative_to(ROOT) for path in published() if "secantus" in path.read_text("utf-8", "ignore").lower()}
    allowed = (
        {"anamnesis_tests", "docs"},
        {"CHANGELOG.md", "CONTRIBUTING.md", "constraints.txt", "mkdocs.yml", "pyproject.toml"},
    )
    assert [path for path in sorted(named) if path.parts[0] not in allowed[0] and str(path) not in allowed[1]] == []
    shipped = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert "*" in shipped
    assert not {f"!{name}" for name in (*allowed[0], "CONTRIBUTING.md")} & {*shipped}
