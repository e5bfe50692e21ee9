"""What a text names, and what only looks like it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.entities.in_texts import things_of
from anamnesis_pipeline.store.entity_model import EntityKind


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("The rounding is in `src/billing/invoice.py`.", "file", "src/billing/invoice.py"),
        ("see config/prod.toml:12 for it", "file", "config/prod.toml"),
        ("`charge_card()` raises on zero", "symbol", "charge_card"),
        ("`Billing::InvoiceTotal` is wrong", "symbol", "InvoiceTotal"),
        ("`create_refs/2` is new", "symbol", "create_refs"),
        ("Read https://docs.acme.dev/api/v2?page=3.", "url", "docs.acme.dev/api/v2?page=3"),
        ("Read https://docs.acme.dev/api", "host", "docs.acme.dev"),
        ("the staging box is `10.1.2.3`", "host", "10.1.2.3"),
        ("we pin `pydantic>=2.7`", "package", "pydantic"),
        ("this is about PAY-123, please", "ticket", "PAY-123"),
        ("fixed in PR #482", "ticket", "#482"),
        ("as in acme/shop#77", "ticket", "acme/shop#77"),
        ("ask ann.lee@acme.dev about it", "person", "ann.lee@acme.dev"),
        ("Co-Authored-By: Ann Lee <ann@acme.dev>", "person", "Ann Lee"),
        ("since 2026-03-01 it fails", "date", "2026-03-01"),
        ("due on March 3rd, 2026", "date", "2026-03-03"),
        ("bis zum 3. März 2026", "date", "2026-03-03"),
        ("el 3 de marzo de 2026", "date", "2026-03-03"),
    ],
)
def test_text_names_a_thing(text: str, kind: str, name: str) -> None:
    assert (EntityKind(kind), name) in [(its, called) for its, called, _ in things_of(text)]


@pytest.mark.parametrize(
    "text",
    [
        "We use node.js and next.js, and it is 3.5/5 done.",
        "Encoded as UTF-8 with SHA-256, see RFC-7231.",
        "Step 2 of 3, 50% and 12:30, version 1.2.3.",
        "Call it `total`, `x` or `foo`.",
        "The field `start_col` and the event `close_session`.",
        "It fixes hook issues\n6. Pushed, see issue 5.",
        "curl http://localhost:8000/health",
        "git@github.com:acme/shop.git",
        "```\nimport src/billing/invoice.py\n```",
        "either/or and his/her",
        "on 2026-13-45 nothing happens",
    ],
)
def test_what_only_looks_like_a_thing_is_none(text: str) -> None:
    assert things_of(text) == []


def test_dependency_is_told_with_what_depends() -> None:
    assert (EntityKind.FILE, "src/b.py", "src/a.py") in things_of("`src/a.py` depends on `src/b.py`.")
    assert (EntityKind.FILE, "src/b.py", "") in things_of("`src/a.py` no longer uses `src/b.py`.")


@given(st.text())
def test_any_text_names_a_bounded_number_of_things_once(text: str) -> None:
    named = [(kind, name) for kind, name, _ in things_of(text)]
    assert len(named) == len(set(named)) <= 40


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["a/", "`", "#1 ", "a.b@", "A-1", "https://a", "1 de ", "_a"])
def test_long_text_of_one_piece_takes_no_time(piece: str) -> None:
    things_of(piece * (100_000 // len(piece)))
