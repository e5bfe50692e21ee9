"""What is excluded does not come in, and comes in once it is not excluded any more: real logs, store and archive."""

from datetime import timedelta

import pytest

from anamnesis_pipeline.errors import Excluded, GiveUp
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.pipeline.exclusion import Exclusions
from anamnesis_pipeline.pipeline.projects import add_alias
from anamnesis_pipeline.services import blocklist, wiring
from anamnesis_pipeline.services.blocklist import add_rule, exclude_episode, lift, matching_episodes
from anamnesis_pipeline.services.posting import EpisodeDraft, EpisodeWriter
from anamnesis_pipeline.sources.exclusion import Rule, RuleKind, sha256_of
from anamnesis_tests.support.archived_logs import DAY, FOLDER, OTHER, SESSION, Home, unmasked
from anamnesis_tests.support.crawled_logs import source_changed

WALRUS = "The walrus rounding happens twice, quagga said so in the review."


@pytest.fixture
def home(log_home: Home) -> Home:
    log_home.say("Why is the ledger of the walrus module wrong by one cent?", WALRUS)
    log_home.say("Where does the gecko sleep?", "It sleeps in the sun.", at=90, session=OTHER, cwd="/code/zoo")
    return log_home


def rule(home: Home, kind: RuleKind, value: str, reason: str = "") -> Rule:
    return add_rule(home.store, Rule(kind, value, reason=reason))[0]


def poster(home: Home) -> EpisodeWriter:
    return EpisodeWriter(home.store, unmasked, wiring.open_pieces(), None)


def draft(text: str, **fields: str) -> EpisodeDraft:
    return EpisodeDraft(**{"summary": text, "instance": "box", "project": "p"} | fields)


def sessions(home: Home) -> set[str]:
    return {episode.session_id for episode in home.episodes()}


@pytest.mark.parametrize("kind", [RuleKind.PATH, RuleKind.SESSION, RuleKind.PATTERN])
def test_a_log_excluded_by_its_path_is_not_read_until_lifted(home: Home, kind: RuleKind) -> None:
    log = home.logs / FOLDER / f"{SESSION}.jsonl"
    value = {RuleKind.PATH: str(log), RuleKind.SESSION: SESSION, RuleKind.PATTERN: f"{SESSION}*"}[kind]
    added = rule(home, kind, value)
    home.ingest(unmasked)
    assert sessions(home) == {OTHER}
    assert b"walrus" not in home.bytes()
    assert home.store.files.cursor(home.source().key, log.name) is None
    assert not source_changed(home.store, home.host, home.source())
    assert lift(home.store, added.rule_id) is not None
    assert source_changed(home.store, home.host, home.source())
    home.ingest(unmasked)
    assert sessions(home) == {OTHER, SESSION}


def test_a_log_excluded_half_way_goes_on_when_it_is_lifted(home: Home) -> None:
    home.ingest(unmasked)
    added = rule(home, RuleKind.PATH, str(home.logs / FOLDER))
    home.say("And what of the narwhal?", at=50)
    home.ingest(unmasked)
    assert home.finds("walrus")
    assert not home.finds("narwhal")
    cursor = home.store.files.cursor(home.source().key, f"{SESSION}.jsonl")
    assert (cursor.lines, cursor.gone) == (2, False)
    lift(home.store, added.rule_id)
    home.ingest(unmasked)
    assert home.finds("narwhal")
    assert len(home.archived()) == 3


@pytest.mark.parametrize(
    ("kind", "value"), [(RuleKind.PROJECT, "/code/zoo"), (RuleKind.CONTENT_PATTERN, r"(?i)THE\s+gecko")]
)
def test_a_project_or_text_is_not_found_until_it_is_lifted(home: Home, kind: RuleKind, value: str) -> None:
    added = rule(home, kind, value)
    home.ingest(unmasked)
    assert sessions(home) == {SESSION}
    assert not home.finds("gecko")
    assert home.store.exclusion.held() == {added.rule_id: 1}
    assert home.store.parts.unfinished_sources(DAY + timedelta(days=1)) == set()
    (home.logs / FOLDER / f"{OTHER}.jsonl").unlink()
    assert lift(home.store, added.rule_id).parts == 1
    assert home.store.parts.unfinished_sources(DAY + timedelta(days=1)) == {home.source().key}
    home.ingest(unmasked)
    assert home.finds("gecko")


def test_a_part_of_two_rules_stays_away_until_both_are_gone(home: Home) -> None:
    one, two = rule(home, RuleKind.PROJECT, "/code/zoo"), rule(home, RuleKind.CONTENT_PATTERN, "gecko")
    home.ingest(unmasked)
    lift(home.store, one.rule_id)
    home.ingest(unmasked)
    assert not home.finds("gecko")
    lift(home.store, two.rule_id)
    home.ingest(unmasked)
    assert home.finds("gecko")


def test_an_excluded_project_stays_away_under_a_later_alias(home: Home) -> None:
    exclusions = Exclusions(home.store)
    assert exclusions.of_project("zoo-old") is None
    rule(home, RuleKind.PROJECT, "zoo")
    assert exclusions.of_project("zoo-old") is None
    add_alias(home.store, "zoo-old", "zoo")
    assert exclusions.of_project("zoo-old")


RULES = [(RuleKind.PROJECT, "/code/shop"), (RuleKind.CONTENT_PATTERN, "walrus"), (RuleKind.PATTERN, f"{SESSION}*")]


def test_what_is_stored_stays_and_is_listed_to_be_forgotten(home: Home) -> None:
    home.ingest(unmasked)
    for kind, value in RULES:
        added = rule(home, kind, value)
        assert len(home.episodes()) == 2
        (found,) = matching_episodes(home.store, added)
        assert home.store.episodes.get([found])[found].session_id == SESSION


@pytest.mark.parametrize(
    ("kind", "value"),
    [(RuleKind.PROJECT, "p"), (RuleKind.CONTENT, sha256_of("the plan")), (RuleKind.CONTENT_PATTERN, "the plan")],
)
def test_a_post_that_is_excluded_is_refused_with_the_reason(home: Home, kind: RuleKind, value: str) -> None:
    kept, _ = poster(home).create(draft("another", project="q"))
    added = rule(home, kind, value, reason="not ours")
    with pytest.raises(Excluded, match="not ours"):
        poster(home).create(draft("the plan"))
    with pytest.raises(Excluded, match=added.rule_id):
        poster(home).patch(kept.episode_id, {"summary": "the plan", "project": "p"})
    assert len(home.episodes()) == 1


def test_an_excluded_episode_stays_away_until_it_is_lifted(home: Home) -> None:
    home.ingest(unmasked)
    (found,) = home.finds("walrus")
    text = home.store.episodes.get([found])[found].raw_exchange
    assert exclude_episode(home.store, found, "wrong") is not None
    home.say("More?", at=200)
    home.ingest(unmasked)
    assert not home.finds("walrus")
    with pytest.raises(Excluded, match="wrong"):
        poster(home).create(draft("short", raw_exchange=text))
    entries = blocklist.blocklist(home.store, 10)
    assert [(e.kind, e.reason, e.episode_id) for e in sorted(entries, key=lambda e: e.kind)] == [
        ("content", "wrong", found),
        ("episode", "wrong", found),
    ]
    lifted = lift(home.store, found)
    assert (lifted.tombstones, lifted.parts) == (1, 1)
    assert blocklist.blocklist(home.store, 10) == []
    home.ingest(unmasked)
    assert home.finds("walrus") == {found}
    assert exclude_episode(home.store, "none", "") is None


def test_what_was_forgotten_comes_back_from_its_log_when_lifted(home: Home) -> None:
    home.ingest(unmasked)
    (found,), (gecko,) = home.finds("walrus"), home.finds("gecko")
    home.forget(ids=(found, gecko))
    (home.logs / FOLDER / f"{OTHER}.jsonl").unlink()
    home.ingest(unmasked)
    assert not home.episodes()
    lifted = lift(home.store, found)
    assert (lifted.parts, lifted.files) == (0, 1)
    home.ingest(unmasked)
    assert home.finds("walrus") == {found}
    lift(home.store, gecko)
    home.ingest(unmasked)
    assert not home.finds("gecko")
    assert home.ingest(unmasked) == home.episodes()


def test_the_blocklist_is_paged_newest_first(home: Home) -> None:
    home.ingest(unmasked)
    added = [rule(home, RuleKind.PATH, f"/p{n}").rule_id for n in range(3)]
    deleted = [e.episode_id for e in home.episodes()]
    for episode_id in deleted:
        assert exclude_episode(home.store, episode_id, "")
    seen: list[str] = []
    before = None
    while page := blocklist.blocklist(home.store, 2, before):
        seen += [entry.id for entry in page]
        before = page[-1].added_at, page[-1].id
    assert len(seen) == len(set(seen)) == 7
    assert seen[-3:] == added[::-1]


def test_a_rule_that_is_there_keeps_its_place(home: Home) -> None:
    first, is_new = add_rule(home.store, Rule(RuleKind.PATH, "/a/"))
    again, is_new_again = add_rule(home.store, Rule(RuleKind.PATH, "/a", reason="because"))
    assert (is_new, is_new_again) == (True, False)
    assert (again.rule_id, again.added_at, again.reason) == (first.rule_id, first.added_at, "because")
    assert lift(home.store, "rule-none") is None
    assert lift(home.store, "none") is None
    with pytest.raises(GiveUp):
        add_rule(home.store, Rule(RuleKind.PATH, "relative"))


def test_asking_without_any_rule_finds_nothing_excluded(home: Home) -> None:
    assert Exclusions(home.store).stamp == ""
    assert home.store.episodes.count(EpisodeFilter()) == 0
    assert Exclusions(home.store).reason("box", "/any", "p") is None
    rule(home, RuleKind.PATH, "/srv", reason="private")
    assert "private" in (Exclusions(home.store).reason("box", "/srv/a.md") or "")
