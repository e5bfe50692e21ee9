"""Before an edit or a command a session hears what is known of just that, once; else nothing."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.entities.linking import link
from anamnesis_pipeline.knowledge.dream import observe
from anamnesis_pipeline.model import MEMORY_BEGINS, MEMORY_ENDS
from anamnesis_pipeline.search.project_labels import NOTHING_PRIVATE, Private
from anamnesis_pipeline.search.token_budget import count_tokens
from anamnesis_pipeline.services.before_action import MAX_TOKENS, ActionRequest, BeforeAction
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.archived_logs import DAY, OTHER, SESSION, Home, record
from anamnesis_tests.support.worked_sessions import called, used, work

PROJECT = "/code/shop"
EDIT = ActionRequest(
    "/code/shop/src/prices.py", "return total", "return round(total, 2)", cwd=PROJECT, session_id="new"
)
NOW = DAY + timedelta(days=2)


@pytest.fixture
def home(tmp_path: Path, store: Store) -> Iterator[Home]:
    home = Home(tmp_path, store)
    work(home)
    failed = [
        record("user", "check the backup", 300),
        *called("restic check", "Fatal: Please specify repository location (-r)", 301, OTHER, is_error=True),
    ]
    failed += called("restic -r /backup check", "no errors were found", 302, OTHER)
    home.write(failed, f"-code-shop/{OTHER}.jsonl")
    home.ingest()
    link(home.store)
    observe(home.store)
    yield home
    home.close()


def told(home: Home, asked: ActionRequest, private: Private = NOTHING_PRIVATE) -> str:
    return BeforeAction(home.store, private, minilm_pieces(), "elsewhere").tell(asked, NOW).text


def test_correction_that_names_the_file_is_told_in_its_words(home: Home) -> None:
    text = told(home, EDIT)
    assert "“no, never round in prices.py, round where the invoice is printed”" in text
    assert text.startswith(MEMORY_BEGINS)
    assert text.endswith(MEMORY_ENDS)
    assert count_tokens(text, minilm_pieces()) <= MAX_TOKENS


def test_same_thing_is_told_once_a_session(home: Home) -> None:
    assert told(home, EDIT)
    assert told(home, EDIT) == ""
    assert told(home, replace(EDIT, session_id="another"))


def test_session_is_not_told_its_own_words(home: Home) -> None:
    assert told(home, replace(EDIT, session_id=SESSION)) == ""


def test_file_that_was_only_touched_is_passed_in_silence(home: Home) -> None:
    assert told(home, replace(EDIT, path="/code/shop/src/tax.py", before="a = 1", after="a = 2")) == ""


def test_command_that_failed_last_is_told_with_what_ended_it(home: Home) -> None:
    text = told(home, ActionRequest(command="restic check", cwd=PROJECT))
    assert "Fatal: Please specify repository location (-r)" in text
    assert "Ended by: restic -r /backup check" in text
    assert told(home, ActionRequest(command="alembic upgrade head", cwd=PROJECT)) == ""  # it worked again


def test_command_with_other_arguments_is_told_if_other_options_ended_it(home: Home) -> None:
    failed = [record("user", "test the prices", 400)]
    failed += called(
        "mix test --partitions 2 a_test.exs", "** (Mix) MIX_PART must be an integer", 401, OTHER, is_error=True
    )
    failed += called("MIX_PART=1 mix test --partitions 2 a_test.exs", "3 passed", 402, OTHER)
    failed += called("npm run lint src/a.ts", "Error: a.ts: missing semicolon", 403, OTHER, is_error=True)
    failed += used("Edit", {"file_path": "/code/shop/src/a.ts", "new_string": "x;"}, "updated", 404, OTHER)
    failed += called("npm run lint src/a.ts --fix", "ok", 405, OTHER)
    home.write(failed, f"-code-shop/{OTHER}.jsonl")
    home.ingest()
    link(home.store)
    other = ActionRequest(command="mix test --partitions 2 b_test.exs", cwd=PROJECT)
    assert "Ended by: MIX_PART=1 mix test --partitions 2 a_test.exs" in told(home, other)
    assert told(home, ActionRequest(command="mix test b_test.exs", cwd=PROJECT)) == ""
    assert told(home, ActionRequest(command="npm run lint src/a.ts", cwd=PROJECT)) == ""  # it was edited since


@pytest.mark.parametrize(
    ("failed", "later", "told_as"),
    [
        ("cd /code/shop && make seed", "sleep 3 && make seed", ""),
        ("cd /code/shop && make seed", "sleep 3; cd api && echo again && make seed", ""),
        ("curl -f shop/up", "sleep 2 && curl -sf shop/up", ". Succeeded later: sleep 2 && curl -sf shop/up"),
        ("make seed", "FORCE=1 make seed", ". Ended by: FORCE=1 make seed"),
    ],
)
def test_mere_rerun_is_not_told_as_remedy(home: Home, failed: str, later: str, told_as: str) -> None:
    said = [record("user", "seed the shop", 400)]
    said += called(failed, "Error: database is starting up", 401, OTHER, is_error=True)
    home.write([*said, *called(later, "ok", 402, OTHER)], f"-code-shop/{OTHER}.jsonl")
    home.ingest()
    link(home.store)
    text = told(home, ActionRequest(command=failed, cwd=PROJECT))
    assert bool(text) == bool(told_as)
    assert told_as in text
    assert told(home, ActionRequest(command="sleep 3", cwd=PROJECT)) == ""


def test_private_project_is_told_only_to_its_own_sessions(home: Home) -> None:
    private = Private((), (PROJECT,))
    assert told(home, replace(EDIT, cwd="/code/other"), private) == ""
    assert told(home, EDIT, private)


def test_unknown_folder_and_small_budget_are_silent(home: Home) -> None:
    assert told(home, replace(EDIT, cwd="")) == ""
    assert told(home, replace(EDIT, cwd="/nowhere/else")) == ""
    assert told(home, replace(EDIT, max_tokens=40)) == ""
