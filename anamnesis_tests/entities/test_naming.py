"""Names of things: clones, worktrees and machines agree on them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.entities.naming import command_names, file_name, form_of, is_same_file, root_of


@pytest.mark.parametrize(
    ("path", "folder", "name"),
    [
        ("/home/ann/code/shop/src/pay.py", "/home/ann/code/shop", "src/pay.py"),
        ("src/pay.py", "/home/ann/code/shop", "src/pay.py"),
        ("../web/index.ts", "/home/ann/code/shop/api", "web/index.ts"),
        ("/Users/bo/shop/src/pay.py", "/Users/bo/shop/src", "src/pay.py"),
        (
            "/home/ann/code/shop/.claude/worktrees/fix/src/pay.py",
            "/home/ann/code/shop/.claude/worktrees/fix",
            "src/pay.py",
        ),
        ("/home/ann/code/shop-worktrees/fix/src/pay.py", "/home/ann/code/shop-worktrees/fix", "src/pay.py"),
        ("C:\\code\\shop\\src\\pay.py", "C:\\code\\shop", "src/pay.py"),
        ("/etc/nginx/nginx.conf", "/home/ann/code/shop", "/etc/nginx/nginx.conf"),
    ],
)
def test_file_has_its_path_in_the_repository(path: str, folder: str, name: str) -> None:
    assert file_name(path, folder, root_of("acme/shop", [folder])) == name


@pytest.mark.parametrize(
    ("asked", "is_it"),
    [
        ("pay.py", True),
        ("src/pay.py", True),
        ("./src/pay.py", True),
        ("/home/bo/clone/src/pay.py", True),
        ("SRC/Pay.py", True),
        ("repay.py", False),
        ("lib/pay.py", False),
        ("src/pay.pyc", False),
    ],
)
def test_file_is_found_by_a_piece_of_its_path(asked: str, is_it: bool) -> None:
    assert is_same_file("src/pay.py", asked) is is_it


def test_bare_name_does_not_stand_for_a_path_that_ends_with_it() -> None:
    assert not is_same_file("pay.py", "/other/src/pay.py")


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("cd api && npm run build -- --watch", ["npm run build"]),
        ("uv run pytest -q tests/test_pay.py", ["pytest"]),
        ("uv run --env-file .env.test pytest tests", ["pytest"]),
        ("kubectl -n billing rollout status deploy/x", ["kubectl rollout status"]),
        ("cmake --build --preset release", ["cmake"]),
        ("python -m alembic upgrade head", ["python -m alembic"]),
        ("python scripts/seed.py --all", ["python seed.py"]),
        ("mix ecto.migrate", ["mix ecto.migrate"]),
        ("python manage.py migrate stock", ["python manage.py migrate"]),
        ("docker compose up -d db", ["docker compose up"]),
        ("./gradlew test --tests 'A*'", ["gradle test"]),
        ("poetry config cert /etc/ca.pem && poetry run pytest", ["poetry config cert", "pytest"]),
        ("uv pip install httpx && bundle add puma && bundle exec rspec", ["pip install", "bundle add", "rspec"]),
    ],
)
def test_command_is_named_by_program_and_subcommand(script: str, names: list[str]) -> None:
    assert [name for name, program in command_names(script) if program != "cd"] == names


def test_form_is_what_is_given_without_values() -> None:
    assert form_of("A=1 pytest -q --maxfail=2 tests/a.py") == form_of("A=2 pytest --maxfail=3 -q tests/b.py")
    assert form_of("pytest -q") != form_of("pytest -v")
    assert form_of("pytest -q") != form_of("A=1 pytest -q")


@given(st.text(max_size=80), st.text(max_size=40))
def test_any_path_has_a_bounded_name_that_is_found_again(path: str, folder: str) -> None:
    name = file_name(path, folder, root_of("shop", [folder]))
    assert len(name) <= 300
    assert is_same_file(name, name)
