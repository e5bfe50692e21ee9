"""Who changed a file, what ended an error, how something is run: answers, their words, and what they never show."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.cli.asking import render
from anamnesis_pipeline.entities.linking import link
from anamnesis_pipeline.search.project_labels import NOTHING_PRIVATE, Private
from anamnesis_pipeline.services.asking import Asked, Asking, question_of
from anamnesis_pipeline.services.things import is_called
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.archived_logs import OTHER, SESSION, Home, record
from anamnesis_tests.support.worked_sessions import REFUSED, called, edit, used, work

PROJECT = "/code/shop"


@pytest.fixture
def home(tmp_path: Path, store: Store) -> Iterator[Home]:
    home = Home(tmp_path, store)
    work(home)
    yield home
    home.close()


def answered(home: Home, kind: Asked, asked: str, private: Private = NOTHING_PRIVATE, **where: Any) -> Any:
    asking = Asking(home.store, private, "elsewhere")
    return asking.answer(kind, asked, asking.where(where.get("project"), where.get("included", ())), 5)


def test_blame_names_session_reason_and_how_to_resume(home: Home) -> None:
    (item,) = answered(home, Asked.BLAME, "src/prices.py")["items"]
    assert (item["session_id"], item["edits"], item["names"]) == (SESSION, 1, ["src/prices.py"])
    assert item["why"] == "round the prices of an order to cents"
    assert item["resume"] == f"claude --resume {SESSION}"
    assert (item["folder"], item["machine"]) == (PROJECT, "box")


def test_edits_are_counted_by_calls_also_within_one_exchange(home: Home) -> None:
    said = [record("user", "round them again", 950)]
    said += [*edit("/code/shop/src/prices.py", 951, PROJECT), *edit("/code/shop/src/prices.py", 952, PROJECT)]
    home.write([*said, *called("sed -i s/1/2/ src/prices.py src/prices.py", "", 953, SESSION)])
    home.ingest()
    link(home.store)
    (item,) = answered(home, Asked.BLAME, "src/prices.py")["items"]
    assert item["edits"] == 1 + 3


def test_run_that_succeeded_in_the_end_was_not_tried_in_vain(home: Home) -> None:
    (item,) = answered(home, Asked.FIX, REFUSED)["items"]
    assert item["tried"] == []


def test_error_is_found_by_the_two_words_that_tell_it(home: Home) -> None:
    (item,) = answered(home, Asked.FIX, "connection refused")["items"]
    assert item["line"] == REFUSED


def test_commit_is_no_run_of_what_its_message_says(home: Home) -> None:
    home.write([record("user", "save it", 950), *called("git commit -am 'run the price tests'", "ok", 951, SESSION)])
    home.ingest()
    link(home.store)
    (item,) = answered(home, Asked.HOW, "run the prices tests")["items"]
    assert item["script"] == "pytest -q tests/test_prices.py"


def test_command_that_only_failed_is_not_answered_by_the_same_script_for_another(home: Home) -> None:
    lines = [record("user", "deploy", 960), *called("./deploy.sh staging", "ok", 961, SESSION)]
    home.write([*lines, *called("./deploy.sh production", "Error: no access", 963, SESSION, is_error=True)])
    home.ingest()
    link(home.store)
    body = answered(home, Asked.HOW, "./deploy.sh production")
    assert (body["items"], [each["script"] for each in body["rejected"]]) == ([], ["./deploy.sh production"])


def test_fix_tells_what_failed_and_what_ended_it(home: Home) -> None:
    (item,) = answered(home, Asked.FIX, f"Traceback:\n{REFUSED.replace('5433', '5999')}")["items"]
    assert (item["session_id"], item["command"]) == (OTHER, "alembic upgrade head")
    assert item["ended"] == ["docker compose up -d db"]


def test_how_tells_command_folder_and_success(home: Home) -> None:
    (item,) = answered(home, Asked.HOW, "pytest")["items"]
    assert (item["script"], item["ran_in"], item["succeeded"]) == ("pytest -q tests/test_prices.py", PROJECT, 1)


@pytest.mark.parametrize(
    ("kind", "asked"),
    [(Asked.BLAME, "src/orders.py"), (Asked.FIX, "KeyError: 'currency_code'"), (Asked.HOW, "cargo build")],
)
def test_unknown_thing_is_answered_in_one_sentence(home: Home, kind: Asked, asked: str) -> None:
    body = answered(home, kind, asked)
    assert body["items"] == []
    assert render(kind, body) == body["nothing"]
    assert body["nothing"].startswith("Nothing is recorded of this")


@pytest.mark.parametrize(
    ("kind", "asked"), [(Asked.BLAME, "prices.py"), (Asked.FIX, REFUSED), (Asked.HOW, "alembic upgrade head")]
)
def test_private_project_is_told_only_when_named(home: Home, kind: Asked, asked: str) -> None:
    private = Private((), (PROJECT,))
    assert answered(home, kind, asked, private)["items"] == []
    assert answered(home, kind, asked, private, project=PROJECT)["items"]
    assert answered(home, kind, asked, private, included=(PROJECT,))["items"]


def test_private_source_is_told_only_when_named(home: Home) -> None:
    source = home.source()
    private = Private((source,))
    assert answered(home, Asked.BLAME, "prices.py", private)["items"] == []
    assert answered(home, Asked.BLAME, "prices.py", private, included=(source.key,))["items"]


def test_command_that_never_succeeded_is_rejected(home: Home) -> None:
    home.write(
        [
            record("user", "deploy it", 200),
            *called("make deploy", "make: *** [deploy] Error 2", 201, SESSION, is_error=True),
        ]
    )
    home.ingest()
    link(home.store)
    body = answered(home, Asked.HOW, "make deploy")
    assert [each["script"] for each in body["rejected"]] == ["make deploy"]
    assert "Rejected, never succeeded here:\n   failed: make deploy" in render(Asked.HOW, body)


def test_words_quote_reason_and_resume_command(home: Home) -> None:
    text = render(Asked.BLAME, answered(home, Asked.BLAME, "prices.py"))
    assert "1 edit: src/prices.py" in text
    assert "   asked: round the prices of an order to cents" in text
    assert f"   to go on: claude --resume {SESSION} in /code/shop on box" in text


def test_query_with_prefix_asks_about_a_thing() -> None:
    assert question_of("blame: src/api.py") == (Asked.BLAME, "src/api.py")
    assert question_of("fix:KeyError\nmore") == (Asked.FIX, "KeyError\nmore")
    assert question_of("how do we run it") is None
    assert question_of("how:") is None


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("app/exports/pdf_export.rb", "PdfExport"),
        ("app/exports/pdf_export.rb", "PdfExport.run"),
        ("bin/nach-nas", "nach-nas"),
        ("modules/network/main.tf", "modules/network"),
    ],
)
def test_file_is_asked_for_as_its_class_or_folder_is_called(name: str, asked: str) -> None:
    assert is_called(name, asked)
    assert not is_called("app/exports/other.rb", asked)


def test_task_in_words_finds_its_command(home: Home) -> None:
    (item,) = answered(home, Asked.HOW, "run the prices tests")["items"]
    assert item["script"] == "pytest -q tests/test_prices.py"


def test_error_inside_an_output_is_found_by_its_line(home: Home) -> None:
    output = f"Traceback:\n  locked version selection does not match constraints\n{REFUSED.replace('5433', '1')}"
    lines = [record("user", "plan it", 400), *called("terraform plan", output, 401, SESSION, is_error=True)]
    home.write([*lines, *called("terraform init -upgrade", "ok", 402, SESSION)])
    home.ingest()
    link(home.store)
    (item,) = answered(home, Asked.FIX, "locked version selection does not match constraints")["items"]
    assert (item["command"], item["ended"]) == ("terraform plan", ["terraform init -upgrade"])


def test_correction_after_an_edit_is_shown_as_rejected(home: Home) -> None:
    lines = [record("user", "cache the taxes", 500), *edit("/code/shop/src/tax.py", 501, PROJECT)]
    lines += [record("user", "no, revert that. tax rates change at midnight", 502)]
    home.write([*lines, *edit("/code/shop/src/tax.py", 503, PROJECT), record("assistant", "Reverted.", 504)])
    home.ingest()
    body = answered(home, Asked.BLAME, "tax.py")
    assert body["items"][0]["rejected"] == ["no, revert that."]
    assert "   rejected: no, revert that." in render(Asked.BLAME, body)


def test_rule_before_the_first_edit_is_shown_as_decided(home: Home) -> None:
    session, call = f"{OTHER[:-1]}6", {"file_path": "/code/shop/src/cart.py", "old_string": "", "new_string": "x"}
    lines = [record("user", "Never use floats for money. Write the cart.", 520, session)]
    home.write([*lines, *used("Edit", call, "updated", 521, session)], f"-code-shop/{session}.jsonl")
    home.ingest()
    (item,) = answered(home, Asked.BLAME, "cart.py")["items"]
    assert (item["decided"], item["rejected"]) == (["Never use floats for money."], [])


def test_blame_names_the_prompts_before_the_first_and_the_last_edit(home: Home) -> None:
    lines = [record("user", "add a basket", 540), *edit("/code/shop/src/basket.py", 541, PROJECT)]
    lines += [record("user", "empty it after the order", 543), record("assistant", "When it is paid, or sent?", 544)]
    lines += [record("user", "yes, go on", 545), *edit("/code/shop/src/basket.py", 546, PROJECT)]
    home.write([*lines, record("assistant", "It is emptied.", 548)])
    home.ingest()
    body = answered(home, Asked.BLAME, "basket.py")
    (item,) = body["items"]
    assert (item["why_first"], item["why"]) == ("add a basket", "empty it after the order")
    assert "   asked: add a basket\n   asked: empty it after the order" in render(Asked.BLAME, body)


def test_error_is_found_by_less_than_its_line_and_where_a_person_names_it(home: Home) -> None:
    line = "LockedError: the state of the staging cluster is locked by another run (id 7)"
    asked = "the page shows PlayError: cannot play the bell before the first click of a visitor"
    lines = [record("user", "apply it", 600), *called("tofu apply", line, 601, SESSION, is_error=True)]
    lines += [*called("tofu apply -lock-timeout=60s", "ok", 603, SESSION), record("user", asked, 605)]
    lines += [*edit("/code/shop/src/bell.js", 606, PROJECT), record("assistant", "The bell waits for a click.", 608)]
    home.write(lines)
    home.ingest()
    link(home.store)
    (item,) = answered(home, Asked.FIX, "LockedError: the state of the production cluster is locked by")["items"]
    assert item["ended"] == ["tofu apply -lock-timeout=60s"]
    (item,) = answered(home, Asked.FIX, asked.removeprefix("the page shows "))["items"]
    assert (item["line"], item["told"]) == (asked, "The bell waits for a click.")


def test_task_is_found_in_what_was_asked_for_before_the_command(home: Home) -> None:
    lines = [record("user", "also run it against the local ledger with the fake bank", 700)]
    home.write([*lines, *called("timeout 9 gradle serve --mode=fake", "Responding", 701, SESSION)])
    home.ingest()
    link(home.store)
    (item,) = answered(home, Asked.HOW, "local run with the fake bank")["items"]
    assert item["script"] == "timeout 9 gradle serve --mode=fake"
    assert answered(home, Asked.HOW, "local run with the real bank")["items"] == []


def test_command_runs_another_object_or_by_another_program(home: Home) -> None:
    lines = [
        record("user", "lint it", 800),
        *called("golint run ./...", "config is of v2", 801, SESSION, is_error=True),
    ]
    lines += called("go run -modfile=tools/go.mod golint run ./...", "ok", 803, SESSION)
    home.write([*lines, *called("rscript -e 'make(fit_a)'", "ok", 805, SESSION)])
    home.ingest()
    link(home.store)
    (item,) = answered(home, Asked.HOW, "golint run ./internal")["items"]
    assert item["script"] == "go run -modfile=tools/go.mod golint run ./..."
    assert len(answered(home, Asked.HOW, "rscript -e 'make(fit_b)'")["items"]) == 1
    assert answered(home, Asked.HOW, "rscript -e 'show(fit_b)'")["items"] == []


def test_symbol_is_known_by_edits_that_take_out_its_use(home: Home) -> None:
    call = {"file_path": "/code/shop/src/cart.ts", "old_string": "sum(addCents(a, b))", "new_string": "quote.total"}
    home.write([record("user", "totals come from the service", 900), *used("Edit", call, "updated", 901, SESSION)])
    home.ingest()
    link(home.store)
    (item,) = answered(home, Asked.BLAME, "addCents")["items"]
    assert (item["names"], item["why"]) == (["src/cart.ts"], "totals come from the service")
    assert answered(home, Asked.BLAME, "addEuros")["items"] == []
