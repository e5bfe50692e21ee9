"""Storage of posted episodes: normalized, masked, chunked into passages, and passed to the embedder."""

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from anamnesis_pipeline.embeddings.passages import passages_of_posted
from anamnesis_pipeline.embeddings.pieces import PieceCounter
from anamnesis_pipeline.errors import AnamnesisError, EpisodeConflict, EpisodeNotFound, InvalidEpisode
from anamnesis_pipeline.model import Episode, Passage, Space, Status, StoredPassage
from anamnesis_pipeline.parsing.redaction.masking import masks_in
from anamnesis_pipeline.pipeline.exclusion import Exclusions, refuse
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.statuses import EDITED, Cause
from anamnesis_pipeline.store.session_model import METADATA as SESSION_METADATA
from anamnesis_pipeline.store.session_model import SESSION_KIND
from anamnesis_pipeline.store.statements import NO_STATEMENT, STATEMENT, Statement, statement_of, with_statement

_FIRST = datetime.min.replace(tzinfo=UTC)
CONTEXT_WITHIN = timedelta(minutes=30)
CONTEXT_EPISODES = 2
"""Preceding episodes used as context of a posted one. On LoCoMo two preceding turns give recall@10 .739, one .711, none
.621 (the best single list)."""
EMBEDDED_AT_ONCE = 100
"""Max passages of a post (some 60,000 characters) embedded at once; the pipeline embeds the rest of a longer text."""
PATCHABLE = frozenset("summary raw_exchange project instance tags timestamp kind metadata status superseded_by".split())
_STATED = ("subject", "valid_from", "valid_until")
"""Fields of the statement in the metadata, which can be set as well."""
_RECORDED = frozenset("summary raw_exchange project instance timestamp kind".split())
"""Fields of the summary of a session that stay as they are."""
_TEXTS = frozenset("summary raw_exchange project instance kind".split())

log = logging.getLogger(__name__)

MaskText = Callable[[str], tuple[str, Counter[str]]]
EmbedNow = Callable[[Sequence[StoredPassage], Space], None]


@dataclass(frozen=True, slots=True)
class EpisodeDraft:
    """Fields of a new episode. `machine` and `session_id`: for a session's notes, where it ran. `source`: one of the
    reserved. `statement`: what it states, if anything; `replaces`: id of the episode that it takes the place of.
    """

    summary: str
    instance: str
    project: str
    raw_exchange: str = ""
    tags: tuple[str, ...] = ()
    timestamp: datetime | None = None
    episode_id: str | None = None
    kind: str = "note"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    machine: str = ""
    session_id: str = ""
    source: str = "direct"
    statement: Statement = NO_STATEMENT
    replaces: str | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """What would become of a draft: the episode, or the same that is stored, and the ids of those whose place it would
    take.
    """

    episode: Episode
    is_new: bool
    replaced: Sequence[str] = ()


class EpisodeWriter:
    """Creates and edits posted episodes."""

    def __init__(self, store: Store, mask_text: MaskText, pieces: PieceCounter, embed: EmbedNow | None) -> None:
        """:param embed: embeds passages into a space, now or soon, or raises RetryLater; None: left to the pipeline."""
        self._store = store
        self._mask = mask_text
        self._pieces = pieces
        self._embed = embed
        self._exclusions = Exclusions(store)

    def create(self, draft: EpisodeDraft, *, embed: bool = True) -> tuple[Episode, bool]:
        """Store an episode. Return it, with True when it is new, False when the id exists with identical content.

        :param embed: False leaves the vectors to a later, faster `embed` of many episodes.
        :raises EpisodeConflict: the id exists with other content.
        :raises InvalidEpisode: the summary is blank.
        :raises Excluded: a rule excludes its project or its text.
        :raises EpisodeNotFound: there is no episode that it could replace.
        """
        episode = self._episode(draft)
        refuse(self._exclusions.of_episode(episode))
        known = self._store.episodes.get([episode.episode_id]).get(episode.episode_id)
        if known is not None:
            return self._same_or_conflict(known, episode, draft), False
        try:
            created = self._store.episodes.create(episode, self._passages(episode), draft.replaces)
        except EpisodeConflict:  # another client posted this id meanwhile, maybe the same content at another time
            known = self._store.episodes.get([episode.episode_id])[episode.episode_id]
            return self._same_or_conflict(known, episode, draft), False
        if embed:
            self.embed([episode.episode_id])
        return episode, created

    def prepared(self, draft: EpisodeDraft) -> tuple[Episode, list[Passage]]:
        """Return the episode of a draft, masked, and its passages, with nothing written.

        :raises InvalidEpisode: the summary is blank.
        :raises Excluded: a rule excludes its project or its text.
        """
        episode = self._episode(draft)
        refuse(self._exclusions.of_episode(episode))
        return episode, self._passages(episode)

    def preview(self, draft: EpisodeDraft) -> Preview:
        """Return what `create` would do, with nothing written. Raises as `create`."""
        episode = self._episode(draft)
        refuse(self._exclusions.of_episode(episode))
        known = self._store.episodes.get([episode.episode_id]).get(episode.episode_id)
        if known is not None:
            return Preview(self._same_or_conflict(known, episode, draft), is_new=False)
        return Preview(episode, is_new=True, replaced=self._store.episodes.replaced_by(episode, draft.replaces))

    def patch(
        self, episode_id: str, changes: Mapping[str, Any], expected_hash: str | None = None, cause: Cause = EDITED
    ) -> Episode:
        """Edit fields of an episode; the next keyword search finds the new text.

        :param expected_hash: of the content being edited; None: do not check.
        :param cause: of a change of its status, kept in its history.
        :raises EpisodeNotFound: no such id.
        :raises InvalidEpisode: a field is not editable, or its value is invalid.
        :raises EpisodeConflict: another client edited it meanwhile, or it is the summary of a session and would say
            something else.
        :raises Excluded: a rule excludes the edited episode.
        """
        known = self._store.episodes.get([episode_id]).get(episode_id)
        if known is None:
            raise EpisodeNotFound(f"no episode {episode_id!r}")
        if expected_hash not in {None, known.content_hash}:
            raise EpisodeConflict(f"episode {episode_id} changed meanwhile; read it again, then edit")
        changes = _with_stated(known, changes)
        _refuse_rewriting(known, changes)
        if changes.get("status") not in {None, Status.SUPERSEDED, Status.MERGED}:  # nothing stands for it
            changes = {"superseded_by": None, **changes}
        cause = Cause(self.masked(cause.by), self.masked(cause.reason))
        edited = with_masks_counted(replace(known, **self.cleaned(changes)))
        if changes.keys() & {"summary", "raw_exchange", "project"}:
            refuse(self._exclusions.of_episode(edited))
        passages = self._edited_passages(edited, changes.keys())
        self._store.episodes.replace(edited, passages, known.content_hash, cause)
        self.embed([episode_id])
        return self._store.episodes.get([episode_id]).get(episode_id, edited)

    def masked(self, text: str) -> str:
        """Return the text with secrets masked."""
        return self._mask(text)[0]

    def _edited_passages(self, edited: Episode, fields: Set[str]) -> list[Passage]:
        """Return an edited episode's passages. Those of a log keep their message ids; a new summary is added."""
        stored = [held.passage for held in self._store.episodes.passages_of(edited.episode_id)]
        if not fields & {"summary", "raw_exchange", "project", "timestamp"}:
            return stored
        of_messages = [passage for passage in stored if passage.message_ids]
        if not of_messages or "raw_exchange" in fields:
            return self._passages(edited)
        said = passages_of_posted(replace(edited, raw_exchange=""), [], self._pieces)
        return [replace(passage, ordinal=n) for n, passage in enumerate([*of_messages, *said])]

    def _episode(self, draft: EpisodeDraft) -> Episode:
        cleaned = self.cleaned(
            {
                "summary": draft.summary,
                "raw_exchange": draft.raw_exchange,
                "tags": draft.tags,
                "metadata": with_statement(draft.metadata, draft.statement)
                if draft.statement != NO_STATEMENT
                else dict(draft.metadata),
                "timestamp": draft.timestamp or datetime.now(UTC),
                "instance": draft.instance,
                "project": draft.project,
                "kind": draft.kind,
            }
        )
        episode_id = draft.episode_id or f"ep_{cleaned['timestamp']:%Y%m%d}_{uuid.uuid4().hex[:12]}"
        cleaned |= {"machine": draft.machine, "session_id": draft.session_id}
        return with_masks_counted(Episode(episode_id=episode_id, source=draft.source, **cleaned))

    def cleaned(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields normalized and masked.

        :raises InvalidEpisode: a field cannot be set, or the summary is blank.
        """
        for name in changes:
            if name not in PATCHABLE:
                raise InvalidEpisode(name, f"cannot be set; these can: {', '.join(sorted(PATCHABLE))}")
        cleaned = dict(changes)
        if "summary" in cleaned:
            # secrets are detected by their lines, so mask before joining them
            cleaned["summary"] = " ".join(self.masked(cleaned["summary"]).split())
            if not cleaned["summary"]:
                raise InvalidEpisode("summary", "must say something; it is blank")
        for name in _TEXTS & cleaned.keys():
            cleaned[name] = self.masked(cleaned[name])
        if "metadata" in cleaned:
            cleaned["metadata"] = self._masked_values(cleaned["metadata"])
        if "tags" in cleaned:
            cleaned["tags"] = tuple(dict.fromkeys(map(self.masked, cleaned["tags"])))
        return cleaned

    def _masked_values(self, value: Any) -> Any:
        """Return the JSON value with every string masked, keys included; a key may mark its value as secret."""
        if isinstance(value, str):
            return self.masked(value)
        if isinstance(value, Mapping):
            return {
                self.masked(str(key)): self._masked_beside(str(key), item)
                if isinstance(item, str)
                else self._masked_values(item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._masked_values(item) for item in value]
        return value

    def _masked_beside(self, key: str, text: str) -> str:
        before = f'{key}="'
        assigned = self.masked(f'{before}{self.masked(text)}"')
        if assigned.startswith(before) and assigned.endswith('"'):
            return assigned.removeprefix(before)[:-1]
        return self.masked(text)

    def _same_or_conflict(self, known: Episode, wanted: Episode, draft: EpisodeDraft) -> Episode:
        if draft.timestamp is None:  # the client gave no time: ignore it
            wanted = replace(wanted, timestamp=known.timestamp)
        if wanted.content_hash != known.content_hash:
            raise EpisodeConflict(
                f"episode {known.episode_id!r} exists with other content; use PATCH /api/episodes/{known.episode_id}"
            )
        return known

    def _passages(self, episode: Episode) -> list[Passage]:
        return posted_passages(self._store, episode, self._pieces)

    def embed(self, episode_ids: Sequence[str]) -> None:
        """Embed passages of these episodes without vectors, if the model is available; else the pipeline does."""
        space = self._store.spaces.active()
        if self._embed is None or space is None:
            return
        stored = [
            passage for key in episode_ids for passage in self._store.episodes.passages_of(key)[:EMBEDDED_AT_ONCE]
        ]
        have = [self._store.vectors.get(space.key, v, [p.passage_id for p in stored]) for v in space.variants]
        lacking = [p for p in stored if any(p.passage_id not in found for found in have)]
        try:
            if lacking:
                self._embed(lacking, space)
        except AnamnesisError as exc:  # the post succeeded; only its vectors come later
            log.info("%d episodes are found by their words now, by meaning later: %s", len(episode_ids), exc)


def _refuse_rewriting(known: Episode, changes: Mapping[str, Any]) -> None:
    """Let the summary of a session say what it said: it is a record of its time. Tags, status and notes may change.

    :raises EpisodeConflict: it would say something else.
    """
    if known.kind != SESSION_KIND:
        return
    names = sorted(name for name in changes.keys() & _RECORDED if changes[name] != getattr(known, name))
    record = changes.get("metadata", known.metadata).get(SESSION_METADATA)
    if record != known.metadata.get(SESSION_METADATA):
        names.append(f"metadata.{SESSION_METADATA}")
    if names:
        raise EpisodeConflict(
            f"episode {known.episode_id} is the summary of a session, a record of its time: {', '.join(names)} of it "
            f"cannot be edited; post a new version, of kind {SESSION_KIND} and with `replaces`: {known.episode_id}"
        )


def _with_stated(known: Episode, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the changes with those of the statement as changes of the metadata, which keep it otherwise."""
    stated = {name: value for name, value in changes.items() if name in _STATED}
    if not stated and "metadata" not in changes:
        return changes
    rest = {name: value for name, value in changes.items() if name not in stated}
    metadata, statement = changes.get("metadata", known.metadata), statement_of(known.metadata)
    if stated:
        statement = replace(statement, **{**stated, "subject": stated.get("subject", statement.subject) or ""})
    elif STATEMENT in metadata:
        return rest
    return {**rest, "metadata": with_statement(metadata, statement)}


def with_masks_counted(episode: Episode) -> Episode:
    """Return the episode with its masks counted by kind in the metadata field `masked`, as for log episodes. A mask in
    both summary and raw text counts once.
    """
    metadata = {name: value for name, value in episode.metadata.items() if name != "masked"}
    masks = masks_in(episode.summary) | masks_in(episode.raw_exchange)
    return replace(episode, metadata=metadata | ({"masked": dict(masks)} if masks else {}))


def posted_passages(
    store: Store,
    episode: Episode,
    pieces: PieceCounter,
    *,
    without: Collection[str] = (),
    beside: Sequence[Episode] = (),
) -> list[Passage]:
    """Return the passages of a posted episode, with the summaries of the episodes before it as context.

    :param without: ids of episodes that are no context.
    :param beside: episodes stored just before this one, with their project's canonical name.
    """
    since = max(episode.timestamp, _FIRST + CONTEXT_WITHIN) - CONTEXT_WITHIN  # without underflow
    limit = CONTEXT_EPISODES + 1 + len(without)
    stored = store.episodes.preceding(episode.instance, episode.project, episode.timestamp, since, limit=limit)
    before = sorted(
        [
            *stored,
            *(  # those that `preceding` would select
                e
                for e in beside
                if (e.instance, e.project, e.status) == (episode.instance, episode.project, "active")
                and e.kind != "record"
                and since <= e.timestamp < episode.timestamp
            ),
        ],
        key=lambda e: e.timestamp,
    )
    preceding = [e.summary for e in before if e.episode_id != episode.episode_id and e.episode_id not in without]
    return passages_of_posted(episode, preceding[-CONTEXT_EPISODES:], pieces)
