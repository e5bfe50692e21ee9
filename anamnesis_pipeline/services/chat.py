"""Build what a model receives before it answers: the conversation and hits of the memory. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import dropwhile

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.llm.factory import NEVER_LOCAL
from anamnesis_pipeline.llm.provider import ChatTurn, Provider
from anamnesis_pipeline.model import FORGOTTEN, ChatMessage, Citation, EpisodeFilter, EpisodeHead
from anamnesis_pipeline.search.best_sentences import excerpt_of
from anamnesis_pipeline.search.fusion import RRF_K
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.search.query import Hit, SearchQuery
from anamnesis_pipeline.search.quoting import fenced, id_label, label, one_line, quoted, without_own_tag
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.memory_layers import Layer

HISTORY = 20
"""Messages of the conversation that are sent to the model again."""
PER_QUERY, MAX_HITS = 5, 10
QUERY_CHARS = 2_000
REPLY_CHARS = 500
"""Of the last reply, which names its subject first: embedding a long text costs as much as several short ones."""
EXCERPT_CHARS = 700
MAX_ATTACHED_BYTES = 200 * 1024
"""Per file, in UTF-8; a longer one is cut, with a note to the model."""
LASTING = (Layer.SEMANTIC, Layer.PROCEDURAL)
SPARSE = "The memory has nothing on this."
STANDING = "Found by the standing queries, which precede every message:"
UNASKED = "The memory could not be asked just now; say so if the answer needs it."
ROUNDS = 5
"""Searches that the model may request one after the other."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text attached to a message."""

    name: str
    text: str


def queries_of(message: str, last_reply: str) -> list[SearchQuery]:
    """Return the queries before an answer, over all projects: the message and the last reply."""
    said, before = message.strip()[:QUERY_CHARS], last_reply.strip()[:REPLY_CHARS]
    asked = [question(said), *([_known_before(before)] if before != said else [])]
    return [each for each in asked if each.text]


def standing_of(project: str) -> list[SearchQuery]:
    """Return the standing queries, useful before any answer. They search curated layers only: among everything that was
    ever said, something is always a little similar to such a query.
    """
    asked = (f"{project} decisions and open tasks".strip(), "preferences and standing instructions")
    return [replace(_known_before(text), where=EpisodeFilter(layers=LASTING)) for text in asked]


def asked_ahead(project: str, last_reply: str) -> list[SearchQuery]:
    """Return the queries that are known before the next message."""
    asked = [*queries_of("", last_reply), *standing_of(project)]
    return [within(each, project) for each in asked] if project else asked


def _known_before(text: str) -> SearchQuery:
    """Return a query that does not depend on the message. The user did not ask it, so it counts as no retrieval."""
    return replace(question(text), track=False)


def question(text: str, top_k: int = PER_QUERY) -> SearchQuery:
    """Return the engine's query for a text."""
    return SearchQuery(text, top_k=top_k)


def within(asked: SearchQuery, project: str) -> SearchQuery:
    """Return the query limited to a project."""
    return replace(asked, where=replace(asked.where, projects=(project,)))


def merged(answers: Iterable[Sequence[Hit]], most: int = MAX_HITS) -> list[Hit]:
    """Return the best hits of several answers, each episode once. Merges by reciprocal rank, since scores compare
    within one answer only; among equals, hits of the earlier answer come first.
    """
    hits: dict[str, Hit] = {}
    scores: dict[str, float] = defaultdict(float)
    for answer in answers:
        for rank, hit in enumerate(answer, 1):
            hits.setdefault(hit.episode.episode_id, hit)
            scores[hit.episode.episode_id] += 1 / (RRF_K + rank)
    return sorted(hits.values(), key=lambda hit: -scores[hit.episode.episode_id])[:most]


@dataclass(frozen=True, slots=True)
class Found:
    """Hits of the memory. `standing`: ids that only the standing queries found; `problem`: why there are no hits."""

    hits: list[Hit]
    standing: frozenset[str] = frozenset()
    problem: str = ""

    def with_more(self, other: "Found", most: int | None = None) -> "Found":
        """Add the hits of another search. A hit that either found for the message itself is not standing.

        :param most: maximum number of hits; None: all.
        """
        known = {hit.episode.episode_id for hit in self.hits}
        more = [hit for hit in other.hits if hit.episode.episode_id not in known]
        answering = {hit.episode.episode_id for each in (self, other) for hit in each.parted()[0]}
        return replace(self, hits=(self.hits + more)[:most], standing=(self.standing | other.standing) - answering)

    def parted(self) -> tuple[list[Hit], list[Hit]]:
        """Return the hits for the message, and the standing ones."""
        answering = [hit for hit in self.hits if hit.episode.episode_id not in self.standing]
        return answering, [hit for hit in self.hits if hit.episode.episode_id in self.standing]


def found_by(asked: Sequence[Sequence[Hit]], standing: Sequence[Sequence[Hit]]) -> Found:
    """Return the best of both, hits for the message first.

    :param asked: hits of the queries about the message; `standing`: hits of the standing queries.
    """
    said = {hit.episode.episode_id for hits in asked for hit in hits}
    best = merged([*asked, *standing])
    only = frozenset(hit.episode.episode_id for hit in best) - said
    return Found(sorted(best, key=lambda hit: hit.episode.episode_id in only), only)


def block_of(found: Found) -> str:
    """Return the hits as one block of quotes that ingest recognizes and drops; empty without hits."""
    answering, standing = found.parted()
    return fenced([*map(_line, answering), *([STANDING] if standing else []), *map(_line, standing)])


def _line(hit: Hit) -> str:
    episode, text = hit.episode, excerpt_of(hit.passages)[0]
    place = f"{label(episode.project or 'no project')} {label(episode.machine or episode.instance)}"
    said = f"{episode.timestamp:%Y-%m-%d} {place}"
    return f"- {said} [{id_label(episode.episode_id)}]: {quoted(one_line(text[:EXCERPT_CHARS]))}"


def citations_of(found: Found) -> tuple[Citation, ...]:
    """Return the citations of an answer."""
    return tuple(
        Citation(
            each.episode_id,
            each.summary[:200],
            each.project,
            each.timestamp,
            round(hit.score, 4),
            each.episode_id in found.standing,
        )
        for hit, each in ((hit, hit.episode) for hit in found.hits)
    )


def told(
    history: Sequence[ChatMessage],
    message: str,
    attachments: Sequence[Attachment],
    found: Found,
) -> list[ChatTurn]:
    """Return the conversation as sent to the model, the latest message with the memory's hits. It begins with a
    question, and questions and answers alternate, since some services refuse anything else.
    """
    said = [ChatTurn(each.role, each.text) for each in _kept(history)]
    answering, _ = found.parted()
    memory = [found.problem or ("" if answering else SPARSE), block_of(found)]
    texts = filter(None, [*memory, *map(_attached, attachments), message])
    return _in_turns([*said, ChatTurn("user", "\n\n".join(texts))])


def last_reply(history: Sequence[ChatMessage]) -> str:
    """Return the last answer; empty: none."""
    return next((each.text for each in reversed(history) if each.role == "assistant"), "")


def not_told(hits: Iterable[Hit], history: Sequence[ChatMessage], leaving: Set[str] = frozenset()) -> list[Hit]:
    """Return the hits that the conversation does not contain yet: neither its round trips nor their records.

    :param leaving: ids of episodes to leave out in any case.
    """
    known = {each.episode_id for each in _kept(history)} - {""} | leaving
    return [hit for hit in hits if not known & {hit.episode.episode_id, hit.episode.metadata.get("part_id")}]


def _kept(history: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the messages of the conversation to send again."""
    kept = [each for each in history if each.text.strip() and each.text != FORGOTTEN][-HISTORY:]
    return list(dropwhile(lambda each: each.role == "assistant", kept))


def _in_turns(said: Iterable[ChatTurn]) -> list[ChatTurn]:
    """Join unanswered questions with the question after them."""
    turns: list[ChatTurn] = []
    for each in said:
        if turns and turns[-1].role == each.role:
            turns[-1] = ChatTurn(each.role, f"{turns[-1].text}\n\n{each.text}")
        else:
            turns.append(each)
    return turns


def _attached(file: Attachment) -> str:
    held = file.text.encode("utf-8", "replace")
    text = held[:MAX_ATTACHED_BYTES].decode("utf-8", "ignore")
    rest = (
        f"\n(cut here: the first {MAX_ATTACHED_BYTES:,} of {len(held):,} bytes)"
        if len(held) > len(text.encode())
        else ""
    )
    return f"Attached file {label(file.name)}:\n{without_own_tag(text)}{rest}"


def check_leave(settings: Settings, backend: Provider, private: Private, projects: Callable[[], Iterable[str]]) -> None:
    """:param projects: returns every project that the conversation's may mean; not called for a local backend.
    :raises BadSetting: texts of these projects, or any text, may not be sent to this backend.
    """
    if backend.is_local:
        return
    if settings.local_only:
        raise BadSetting(f"local_only forbids to ask {backend.name}, which is not on this machine; choose another")
    if named := next(filter(private.is_of, projects()), ""):
        raise BadSetting(f"{named} is private, and {backend.name} is not on this machine; choose a local model")


def shown_to(hits: Iterable[Hit], backend: Provider, private: Private) -> list[Hit]:
    """Return the hits that may be sent to a backend."""
    return [hit for hit in hits if backend.is_local or not private.holds(hit.episode)]


def leaning_on_private(
    history: Sequence[ChatMessage], private: Private, look_up: Callable[[Sequence[str]], Mapping[str, EpisodeHead]]
) -> frozenset[str]:
    """Return ids of answers based on private episodes, or, if there are private projects, on deleted ones, whose
    privacy is unknown. Includes later answers of local models, which may repeat such an answer.

    :param look_up: finds episodes by their ids.
    """
    if not private:
        return frozenset()
    heads = look_up(sorted({cited.episode_id for each in history for cited in each.citations}))
    found: set[str] = set()
    for each in (each for each in history if each.role == "assistant"):
        cited = [heads.get(citation.episode_id) for citation in each.citations]
        leans = any(head is None or private.holds(head) for head in cited)
        if leans or (found and each.backend not in NEVER_LOCAL):
            found.add(each.message_id)
    return frozenset(found)
