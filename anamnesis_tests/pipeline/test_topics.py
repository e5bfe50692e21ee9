"""Topic files: what is written in them holds, against what was said in sessions, and against what they said before."""

import pytest

from anamnesis_pipeline.model import EpisodeFilter, Source
from anamnesis_pipeline.pipeline.crawl_documents import DocumentSelection
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.profiles import PROFILES
from anamnesis_pipeline.search.query import SearchQuery
from anamnesis_pipeline.search.trust import authority_of
from anamnesis_pipeline.services.rendering import answer_body
from anamnesis_pipeline.services.schemas import HitOut
from anamnesis_pipeline.settings import load
from anamnesis_pipeline.sources.base import Survey
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.sources.specs import TOPICS, topic_spec
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.crawled_documents import T0, DocumentHome, write
from anamnesis_tests.support.samples import put

TOPIC = "projects/-home-ann-shop/memory/topics/deploys.md"
NOW = "# Going live\n\nThe shop goes live with the blue pipeline, after a build that has passed on the main branch.\n"
SAID = "user: how is the shop deployed? assistant: the shop is deployed with the red pipeline, how the shop is deployed"


@pytest.fixture
def topics(home: DocumentHome) -> Source:
    source = home.source("claude", root=home.place / ".claude")
    home.change(source, TOPIC, NOW, T0)
    return source


def hits(store: Store, profile: str, *, raw: bool = False, **where: object) -> list[HitOut]:
    query = SearchQuery("how is the shop deployed", profile=PROFILES[profile], where=EpisodeFilter(**where))  # type: ignore[arg-type]
    return answer_body(Engine(store, None).search(query), ["raw"] if raw else [], explain=False)["results"]


def test_a_topic_outranks_a_session_that_says_otherwise(home: DocumentHome, topics: Source) -> None:
    put(home.store, "said", SAID, source="logs", session_id="s", kind="exchange", raw_exchange=SAID)
    put(home.store, "again", "Who knows how the shop is deployed, and by whom?", source="logs", session_id="t")
    assert hits(home.store, "default")[0]["episode_id"] == "said"
    topic, said, again = hits(home.store, "facts")
    assert [hit["authority"] for hit in (topic, said, again)] == ["authoritative", "routing", "routing"]
    assert "blue" in topic["excerpt"]
    assert topic["source"]["path"] == f"{topics.root}/{TOPIC}"
    whole = hits(home.store, "facts", raw=True)[1]
    assert (whole["authority"], whole["raw_exchange"]) == ("arbitration", SAID)


def test_an_edited_topic_keeps_its_old_text_without_authority(home: DocumentHome, topics: Source) -> None:
    before = home.one("blue")
    home.change(topics, TOPIC, NOW.replace("blue", "green"))
    (hit,) = hits(home.store, "facts")
    assert "green" in hit["excerpt"]
    assert (hit["authority"], "topic" in hit["tags"]) == ("authoritative", True)
    after = home.one("green")
    assert after.timestamp > before.timestamp
    old = home.one("blue", every=True)
    assert (old.status, old.superseded_by, authority_of(old)) == ("superseded", after.episode_id, "routing")
    found = hits(home.store, "facts", include_superseded=True, tags=("topic",))
    assert [each["authority"] for each in found] == ["authoritative", "routing"]


def test_topics_of_the_home_have_authority_and_a_project(home: DocumentHome) -> None:
    source = home.source(TOPICS)
    home.specs[TOPICS] = spec = topic_spec(home.place / TOPICS, source.machine)
    home.change(source, "acme%2Fshop/deploys.md", NOW, T0)
    (found,) = home.store.episodes.page(EpisodeFilter(tags=("topic",)), 10).items
    assert (found.project, found.path, authority_of(found)) == (
        "acme/shop",
        f"{source.root}/acme%2Fshop/deploys.md",
        "authoritative",
    )
    for path in ("acme%2Fshop/MEMORY.md", ".former/0a.md", "loose.md"):
        write(source, path, NOW, T0)
    rules = DocumentSelection(load().model_copy(update={"home": home.place})).document_rules(spec)
    (survey,) = LocalHost("here").survey([rules.wanted])
    assert isinstance(survey, Survey)
    assert [file.path for file in rules.choose(survey).files] == ["acme%2Fshop/deploys.md"]


def test_topic_holds_whatever_claude_codes_folder_is_called(home: DocumentHome) -> None:
    source = home.source("local-memory", root=home.place / "claude-config")
    home.change(source, TOPIC, NOW, T0)
    (found,) = home.store.episodes.page(EpisodeFilter(tags=("topic",)), 10).items
    assert authority_of(found) == "authoritative"


def test_an_edited_topic_changes_no_session(home: DocumentHome, topics: Source) -> None:
    put(home.store, "said", SAID, source="logs", session_id="s", kind="exchange", raw_exchange=SAID)
    before = home.store.episodes.get(["said"])
    home.change(topics, TOPIC, NOW.replace("blue", "green"))
    assert home.store.episodes.get(["said"]) == before
