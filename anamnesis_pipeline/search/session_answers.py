"""The sessions of a time: the answer to a question about nothing but a time (`what did we do last week?`)."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from anamnesis_pipeline.model import Episode, EpisodeFilter, StoredPassage
from anamnesis_pipeline.parsing.text.plain_text import without_markup
from anamnesis_pipeline.parsing.text.sentences import beginning
from anamnesis_pipeline.parsing.text.transcripts import Voice, voice_shares, voices_in
from anamnesis_pipeline.search.query import Hit
from anamnesis_pipeline.search.time_expressions import TimeReference
from anamnesis_pipeline.search.trust import is_logged
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.memory_layers import layer_of
from anamnesis_pipeline.store.session_model import SESSION_KIND, SessionRecord, of_episode, text_of

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST = timedelta(days=30)
"""A session that began at most this long before the time may have continued in it."""
MAX_RECORDS, MAX_EPISODES = 500, 500
"""Limits of records and episodes of the time, the newest first."""
PROMPT_CHARS, OUTCOME_CHARS, MAX_COMMITS = 240, 480, 8
"""Limits of the fields shown of a record."""
MIN_CHARS = 80
"""Characters of a substantial message."""
_SAID = ("exchange",)


class SessionAnswers:
    """Finds the sessions of a time in one store. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def of(self, where: EpisodeFilter, times: TimeReference, top_k: int, now: datetime) -> list[Hit]:
        """Return a hit for each session, the newest first; of more than `top_k` those with the most messages. A session
        without a record is shown by its last substantial message.

        :param where: the filter of the question, without times.
        """
        since = times.since or EARLIEST
        inside = replace(where, since=times.since, until=times.until, include_superseded=False)
        begun = replace(inside, kinds=(SESSION_KIND,), hidden_kinds=(), since=since - LONGEST)
        records: list[tuple[Episode, SessionRecord]] = []
        known: set[str] = set()
        for episode in self._store.episodes.page(begun, MAX_RECORDS).items:
            record = of_episode(episode)
            if record is not None and record.ended >= since and self._is_of(record, inside, since):
                records.append((episode, record))
                known |= {*record.session_ids, record.session_id}
        open_ones: dict[str, list[Episode]] = {}
        for episode in self._store.episodes.page(replace(inside, kinds=_SAID), MAX_EPISODES).items:
            if is_logged(episode) and episode.session_id not in known:
                open_ones.setdefault(episode.session_id, []).append(episode)
        found = [(record.started, record.messages, self._recorded(episode, record)) for episode, record in records]
        found += [
            (episodes[-1].timestamp, sum(len(each.message_ids) for each in episodes), shown)
            for episodes in open_ones.values()
            if (shown := self._last_said(episodes)) is not None
        ]
        longest = sorted(found, key=lambda each: -each[1])[:top_k]
        chosen = sorted(longest, key=lambda each: each[0], reverse=True)
        return [
            Hit(episode, 1 - n / (2 * top_k), None, passage, layer=layer_of(episode, now))
            for n, (_, _, (episode, passage)) in enumerate(chosen)
        ]

    def _is_of(self, record: SessionRecord, inside: EpisodeFilter, since: datetime) -> bool:
        """Return whether a session has content from the time: a resumed one may pause for days."""
        if record.started >= since:
            return True
        ids = dict.fromkeys((*record.session_ids, record.session_id))
        said = (replace(inside, kinds=_SAID, session_id=session_id) for session_id in ids)
        return any(self._store.episodes.page(where, 1).items for where in said)

    def _recorded(self, episode: Episode, record: SessionRecord) -> tuple[Episode, StoredPassage]:
        """Return the episode of a record, and its text: title, prompt, outcome and commits."""
        asked, titled = " ".join(without_markup(record.prompt).split()), record.title.removesuffix("…")
        is_titled = asked.startswith(titled) and len(asked) < 2 * len(titled)  # the title says most of the prompt
        told = replace(
            record,
            prompt="" if is_titled else beginning(record.prompt, PROMPT_CHARS, keep_lines=True),
            outcome=beginning(without_markup(record.outcome), OUTCOME_CHARS),
            commits=record.commits[:MAX_COMMITS],
            decisions=(),
            open_items=(),
            tests=(),
            files=(),
            commands=(),
        )
        first = self._store.episodes.passages_of(episode.episode_id)[0]
        return episode, replace(first, passage=replace(first.passage, text=text_of(told)))

    def _last_said(self, episodes: Sequence[Episode]) -> tuple[Episode, StoredPassage] | None:
        """Return the last episode with a substantial message of a person or at the end of a turn, and that passage.

        :param episodes: of one session, the newest first.
        """
        read = [(episode, voices_in(episode.raw_exchange)) for episode in episodes]
        for least, wanted in itertools.product((MIN_CHARS, 1), (Voice.CONCLUSION, Voice.STATEMENT, Voice.PERSON)):
            for episode, runs in read:
                if not any(voice is wanted and len(run) >= least for voice, run in runs):
                    continue
                passages = self._store.episodes.passages_of(episode.episode_id)
                shares = [
                    len(each.passage.text) * voice_shares(each.passage.text, runs).get(wanted, 0) for each in passages
                ]
                if passages and max(shares) > 0:
                    return episode, passages[shares.index(max(shares))]
        return None
