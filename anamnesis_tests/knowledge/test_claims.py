"""Which claims a text makes, and which sentences make none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.knowledge.claims import ClaimKind, claims_of


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("The parser is in `src/parser.py`.", ClaimKind.PATH, "src/parser.py"),
        ("See [the guide](docs/guide.md#top).", ClaimKind.PATH, "docs/guide.md"),
        ("Settings are read by src/settings.py:12 at start.", ClaimKind.PATH, "src/settings.py"),
        ("Adapters are in `app/adapters/`; the folder `app/legacy/` was deleted.", ClaimKind.PATH, "app/adapters/"),
        ("Prices are rounded by `round_to_cents()`.", ClaimKind.FUNCTION, "round_to_cents"),
        ("The class `PriceList` sorts them.", ClaimKind.FUNCTION, "PriceList"),
        ("`config.LoadLegacy` reads the old keys.".replace("old ", ""), ClaimKind.FUNCTION, "config.LoadLegacy"),
        ("Run `npm run test:e2e` first.", ClaimKind.SCRIPT, "test:e2e"),
        ("```bash\ncd web && pnpm test:unit\n```", ClaimKind.SCRIPT, "test:unit"),
        ("Before a merge run `make dagcheck`.", ClaimKind.TARGET, "dagcheck"),
        ("```\n$ pytest tests/test_api.py::test_get -q\n```", ClaimKind.PATH, "tests/test_api.py"),
        ("Load it with `python scripts/load.py --all`.", ClaimKind.PATH, "scripts/load.py"),
        ("The service depends on `left-pad`.", ClaimKind.DEPENDENCY, "left-pad"),
        ("Scores are drawn with the package `abcjs`.", ClaimKind.DEPENDENCY, "abcjs"),
        ("Stock is checked by place_cart() at once.", ClaimKind.FUNCTION, "place_cart"),
        ("Its address is `SHOP_BASE_URL`.", ClaimKind.VARIABLE, "SHOP_BASE_URL"),
        ("Die Fühler werden mit `tools/tune.py` kalibriert.", ClaimKind.PATH, "tools/tune.py"),
        ("Pinned to `pydantic>=2.7`.", ClaimKind.DEPENDENCY, "pydantic"),
        ("Set `SHOP_SMS_SENDER` before you test.", ClaimKind.VARIABLE, "SHOP_SMS_SENDER"),
    ],
)
def test_claim_is_found_with_its_quote(text: str, kind: ClaimKind, value: str) -> None:
    (claim,) = claims_of(text)
    assert (claim.kind, claim.value) == (kind, value)
    assert claim.quote in text


@pytest.mark.parametrize(
    "text",
    [
        "There is no `src/parser.py`.",
        "Wir werden `src/parser.py` anlegen.",
        "Die Liste wird nach `src/list.json` geschrieben.",
        "`src/parser.py` was removed in May.",
        "Deleted `src/parser.py`, since nothing used it.",
        "We will add `src/parser.py`.",
        "It isn't in `src/parser.py`.",
        "Read `path/to/parser.py`, `src/<name>.py`, `src/*.py`, `foo.py` and `src/foo.py`.",
        "See https://example.org/docs/guide.md and `https://example.org/a.md`.",
        "Configuration is in `~/.config/shop/settings.toml`.",
        "It is written in `Node.js` and `Next.js`, see `CLAUDE.md`.",
        "Results are written to `results/today.json`.",
        "`results/today.json` is generated.",
        "For example `src/parser.py`.",
        "make sure that it runs",
        "Use `json.loads` and `print()`.",
        "The constant `MAX_RETRIES` is five.",
        "It runs on `python 3.11` and `postgres>=15`.",
        "The action is `actions/checkout@v4`, by `ann@example.org`.",
    ],
)
def test_placeholders_plans_and_history_are_no_claims(text: str) -> None:
    assert [claim for claim in claims_of(text) if claim.kind is not ClaimKind.FUNCTION or "." not in claim.value] == []


def test_claims_know_their_lines() -> None:
    text = "# Shop\n\nIntro.\n\n- The parser is in `src/parser.py`.\n- Tests:\n  `tests/test_parser.py`\n"
    assert [(claim.value, claim.line) for claim in claims_of(text)] == [
        ("src/parser.py", 4),
        ("tests/test_parser.py", 6),
    ]


@given(st.text(alphabet=st.sampled_from("ab_/.`;:!-#\n []()AZ09$<>{}*~ "), max_size=400))
def test_any_text_has_claims_with_verbatim_quotes(text: str) -> None:
    for claim in claims_of(text):
        assert claim.quote in text
        assert 0 <= claim.line <= text.count("\n")
