"""A statement is about an action only if it names what the action touches."""

import pytest

from anamnesis_pipeline.entities.in_actions import (
    Terms,
    forbidden,
    is_about,
    rules,
    stems,
    terms_of_command,
    terms_of_edit,
)

ENGINE = terms_of_edit(
    "app/pricing/engine.py", "async def prices_for(db):", "@functools.cache\nasync def prices_for(db):"
)


@pytest.mark.parametrize(
    ("quote", "terms"),
    [
        ("never round in app/pricing/engine.py", ENGINE),
        ("we do not want in-process caches in the pricing engine", ENGINE),
        (
            "drop gorm, we stay with sqlc",
            terms_of_edit("store/fare.go", "", 'package store\n\nimport "gorm.io/gorm"\n'),
        ),
        ("no polling in useMeterReadings", terms_of_edit("src/api/useMeterReadings.ts", "a: 1", "a: 1, b: 2")),
        ("no moment, it adds 70 kB", terms_of_command("npx expo install moment")),
        ("never apply prod directly", terms_of_command("cd envs/prod && terraform apply -var-file=prod.tfvars")),
        ("never set force_destroy", terms_of_edit("bucket/main.tf", "a = 1", "a = 1\n  force_destroy = true")),
        ("kein rsync hier", terms_of_edit("bin/nach-nas", "", "#!/bin/sh\nrsync -a /srv/ nas:/srv/\n")),
    ],
)
def test_statement_that_names_what_changes_is_about_it(quote: str, terms: Terms) -> None:
    assert is_about(quote, terms, was_there=False)


@pytest.mark.parametrize(
    ("quote", "terms"),
    [
        ("we do not want in-process caches", terms_of_edit("app/pricing/engine.py", "price = 1", "price = 2")),
        ("never edit modules/bucket/main.tf", terms_of_edit("modules/queue/main.tf", "", 'resource "queue" {}')),
        ("main.tf stays small", terms_of_edit("modules/queue/main.tf", "", 'resource "queue" {}')),
        ("meters are never deleted", terms_of_edit("CHANGELOG.md", "", "- Meters can be archived.")),
        ("plan to a file first", terms_of_command("git status")),
        ("the tests need the database", terms_of_command("ls tests | head")),
    ],
)
def test_statement_about_something_else_is_not_about_it(quote: str, terms: Terms) -> None:
    assert not is_about(quote, terms, was_there=False)


def test_session_of_the_file_needs_a_changed_word_or_its_name() -> None:
    terms = terms_of_edit("app/money/cents.py", "x = floor(y)", "x = ceiling(y)")
    assert is_about("we stay with floor", terms, was_there=True)
    assert not is_about("we stay with floor", terms, was_there=False)
    assert not is_about("customers expect it", terms, was_there=True)


def test_command_that_only_looks_touches_nothing() -> None:
    assert terms_of_command("git status; ls -la | head") == terms_of_command("ls -la | head") == Terms()
    assert terms_of_command("kubectl -n shop get pods") == Terms()
    assert terms_of_command("kubectl -n shop rollout restart web") != Terms()


def test_what_a_sentence_refuses_is_told_by_one_word() -> None:
    quote = "no ffmpeg in this app ever, and don't add a cache, we never “publish” by hand"
    assert forbidden(quote) == stems("ffmpeg ever add cache hand")
    assert is_about(quote, terms_of_edit("vcpkg.json", '"zlib",', '"zlib",\n"ffmpeg",'), was_there=False)
    assert forbidden("no longer needed") == frozenset()
    assert is_about("keine Streams in der Firmware", terms_of_edit("a.cpp", "x", "Streams y"), was_there=False)


def test_symbol_whose_body_changes_is_named() -> None:
    terms = terms_of_edit("pay.py", "def total_price(self):\n    return 1", "def total_price(self):\n    return 2")
    assert is_about("We decided: total_price returns Decimal", terms, was_there=False)


def test_value_that_changes_is_named_by_what_stands_beside_it() -> None:
    terms = terms_of_edit("conf/build.gradle", "enableProguard = false", "enableProguard = true")
    assert is_about("proguard is off since it broke the parser, we enable nothing", terms, was_there=True)
    assert terms_of_edit("a.py", "f(x)", "f(x, 1)").changed == frozenset()


def test_rules_are_told_from_requests() -> None:
    assert rules("drop gorm, we stay with sqlc")
    assert rules("pipefail immer setzen")
    assert not rules("find out why the import fails")
