"""What a rule means, and what it does not."""

import pytest

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.sources.exclusion import Rule, RuleKind, RuleSet, checked, sha256_of

S = "4f0c2b1e-0f3d-4a53-9a0e-6c1c3b7a9d10"


def rules(*given: tuple[str, ...], **aliases: str) -> RuleSet:
    return RuleSet(tuple(checked(Rule(RuleKind(kind), *value)) for kind, *value in given), aliases)


@pytest.mark.parametrize(
    ("kind", "value", "path", "means"),
    [
        ("path", "/home/ann/private/", "/home/ann/private", True),
        ("path", "/home/ann/private", "/home/ann/private/deep/notes.md", True),
        ("path", "/home/ann/private", "/home/ann/privateer.md", False),
        ("path", "/home/ann/a.md", "/home/ann/a.md", True),
        ("path", "/", "/anything", True),
        ("path", "C:\\Users\\ann\\private", "C:/Users/ann/private/x.md", True),
        ("pattern", "*.pem", "/srv/keys/host.pem", True),
        ("pattern", "*.pem", "/srv/keys/host.pem.txt", False),
        ("pattern", "node_modules/", "/code/web/node_modules/left/pad.js", True),
        ("pattern", "/srv/**/secret/", "/srv/a/b/secret/k.txt", True),
        ("pattern", "/srv/**/secret/", "/var/srv/secret/k.txt", False),
        ("pattern", "*.md", "/a/with\na newline.md", True),
        ("pattern", "*.md", "/a/not-utf8-\udcff.md", True),
        ("session", "1111-22", "/logs/-code/1111-22.jsonl", True),
        ("session", "1111-22", "/logs/-code/1111-22/subagents/agent-1.jsonl", True),
        ("session", "1111-22", "/logs/-code/1111-222.jsonl", False),
        ("session", S, f"/logs/-code/{S}.jsonl.superseded-1786698001120", True),
        ("session", S, f"/logs/-code/{S}.orphaned-1786698001120-ab12.jsonl", True),
    ],
)
def test_a_rule_of_paths_means_its_path_and_what_is_below(kind: str, value: str, path: str, means: bool) -> None:
    assert (rules((kind, value)).of_path("box", path) is not None) is means


def test_a_rule_of_one_machine_leaves_the_others_alone() -> None:
    of_one = rules(("path", "/srv", "box"), ("pattern", "*.key", "box"))
    assert of_one.of_path("box", "/srv/a")
    assert of_one.of_path("box", "/x/a.key")
    assert not of_one.of_path("nas", "/srv/a")
    assert not of_one.of_path("nas", "/x/a.key")


@pytest.mark.parametrize(
    ("project", "means"),
    [("acme/api", True), ("old-api", True), ("acme/web", False), ("my-api", False), ("", False)],
)
def test_a_project_is_excluded_by_every_name_that_it_has(project: str, means: bool) -> None:
    named = {"old-api": "acme/api"}
    assert (rules(("project", "acme/api"), **named).of_project(project) is not None) is means
    assert (rules(("project", "api"), **named).of_project(project) is not None) is means


def test_content_is_known_by_its_hash_or_by_an_expression() -> None:
    of_text = rules(("content", sha256_of("the plan").upper()), ("content-pattern", r"(?i)top\s+secret"))
    assert of_text.of_content("the plan")
    assert of_text.of_bytes(b"the plan")
    assert of_text.of_content("It is TOP\nsecret.")
    assert of_text.of_content("top secret \udcff")
    assert not of_text.of_content("the plans")
    assert not of_text.of_bytes(b"top secret")


@pytest.mark.timeout(20)
def test_no_expression_takes_longer_than_in_proportion_to_the_text() -> None:
    assert not rules(("content-pattern", "(a*)*b")).of_content("a" * 2_000_000)


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        ("path", "notes", "absolute"),
        ("path", "  ", "characters"),
        ("path", "/a\0b", "characters"),
        ("pattern", "!keep", "leading"),
        ("pattern", "# words", "leading"),
        ("content-pattern", "(open", "missing )"),
        ("content-pattern", "(?=ahead)", "RE2"),
        ("content", "abc", "64 hexadecimal"),
        ("project", "x" * 5_000, "characters"),
    ],
)
def test_a_rule_that_can_mean_nothing_is_refused_with_the_reason(kind: str, value: str, says: str) -> None:
    with pytest.raises(GiveUp) as refused:
        checked(Rule(RuleKind(kind), value))
    assert says in str(refused.value)


def test_the_same_rule_has_the_same_id_whatever_its_reason() -> None:
    assert Rule(RuleKind.PATH, "/a", reason="x").rule_id == Rule(RuleKind.PATH, "/a", reason="y").rule_id
    assert Rule(RuleKind.PATH, "/a").rule_id != Rule(RuleKind.PATH, "/a", "box").rule_id
