"""Cross-source merge: an LLM writes one episode from similar ones of different origin. Manual and reversible.

Nothing is lost: the merged episode holds the texts verbatim, and the originals stay, superseded by it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.pieces import PieceCounter
from anamnesis_pipeline.errors import BadSetting, LlmRefused
from anamnesis_pipeline.llm.prompts import merge_prompt, request_for, text_of
from anamnesis_pipeline.llm.provider import Provider
from anamnesis_pipeline.llm.replies import ParsedReply, parse_reply
from anamnesis_pipeline.model import Episode, EpisodeFilter, Part, Segment, SegmentKind, Space, Variant, content_id
from anamnesis_pipeline.pipeline.llm_calls import Answer, LlmCaller, Pace
from anamnesis_pipeline.pipeline.llm_choice import Llm, LlmChoice
from anamnesis_pipeline.services.posting import EpisodeWriter, posted_passages, with_masks_counted
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.memory_layers import PINNED
from anamnesis_pipeline.store.session_model import SESSION_KIND

MERGED_KIND = "consolidated"
NOT_MERGED = ("document", "code", "record", SESSION_KIND, MERGED_KIND)
"""Kinds not merged: a section's file decides whether it is current; the others were made of episodes."""
MAX_CHARS = 50_000
"""Max characters in a merged episode; longer clusters are not merged, since nothing may be truncated."""
MAX_TAGS = 50
PAGE = 100


@dataclass(frozen=True, slots=True)
class MergeRules:
    """`threshold`: min cosine in the active space of every pair of a cluster. `neighbours`: episodes compared with
    each. `sample`: number of newest episodes considered. `most`: max clusters sent to the LLM in one run.
    """

    threshold: float = 0.84
    neighbours: int = 10
    cluster_most: int = 5
    sample: int = 500
    most: int = 10


@dataclass(frozen=True, slots=True)
class Proposal:
    """A cluster and its outcome: `proposed`, `merged`, `not the same`, `private`, `too long`, `changed` or `no answer`.
    `similarity`: the lowest cosine of a pair.
    """

    members: tuple[str, ...]
    project: str
    similarity: float
    outcome: str = "proposed"
    merged_into: str | None = None


@dataclass(frozen=True, slots=True)
class MergeReport:
    """Result of a run or a dry run."""

    dry_run: bool
    sampled: int = 0
    proposals: tuple[Proposal, ...] = ()
    problem: str = ""
    """Why the LLM was not asked, or no longer."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Outcome -> clusters."""
        return Counter(proposal.outcome for proposal in self.proposals)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Rows of a sample, in order, and the lowest cosine of a pair."""

    rows: tuple[int, ...]
    similarity: float


def find_clusters(
    vectors: NDArray[np.float32], projects: Sequence[str], origins: Sequence[str], rules: MergeRules
) -> list[Cluster]:
    """Return groups of 2 to `cluster_most` rows of one project and at least two origins, every pair above the
    threshold; no row is in two groups. Earlier rows choose first, nearest neighbours first.

    :param vectors: shape (n, dim), unit length.
    """
    taken: set[int] = set()
    found: list[Cluster] = []
    for row in range(len(vectors)):
        if row in taken:
            continue
        near = np.argsort(-(vectors @ vectors[row]), kind="stable").tolist()
        free = [n for n in near if n not in taken and n != row and projects[n] == projects[row]]
        chosen = [row]
        for other in free[: rules.neighbours]:
            if len(chosen) < rules.cluster_most and (vectors[chosen] @ vectors[other]).min() >= rules.threshold:
                chosen.append(other)
        if len({origins[n] for n in chosen}) > 1:
            pairs = vectors[chosen] @ vectors[chosen].T
            found.append(Cluster(tuple(sorted(chosen)), round(float(pairs.min()), 4)))
            taken.update(chosen)
    return found


@dataclass(frozen=True, slots=True)
class Merger:
    """Merges episodes of one store."""

    store: Store
    llm: Llm
    pieces: PieceCounter
    poster: EpisodeWriter
    rules: MergeRules = field(default_factory=MergeRules)

    def run(self, *, dry_run: bool = True) -> MergeReport:
        """Propose clusters; unless `dry_run`, ask the LLM about each and write its merges."""
        space = self.store.spaces.active()
        if space is None:
            return MergeReport(dry_run, problem="no space answers searches yet")
        episodes, vectors = self._sample(space)
        clusters = find_clusters(
            vectors,
            [e.project for e in episodes],
            [e.session_id or f"{e.source} {e.instance}" for e in episodes],
            self.rules,
        )[: self.rules.most]
        proposals = [
            Proposal(tuple(episodes[n].episode_id for n in c.rows), episodes[c.rows[0]].project, c.similarity)
            for c in clusters
        ]
        if dry_run or not proposals:
            return MergeReport(dry_run, len(episodes), tuple(proposals))
        by_id = {episode.episode_id: episode for episode in episodes}
        done, problem = self._apply([(p, [by_id[key] for key in p.members]) for p in proposals])
        return MergeReport(dry_run, len(episodes), tuple(done), problem)

    def _sample(self, space: Space) -> tuple[list[Episode], NDArray[np.float32]]:
        """Return the newest episodes that may be merged, and the mean vector of each, shape (n, dim)."""
        found: list[Episode] = []
        means: list[NDArray[np.float32]] = []
        cursor, is_more = None, True
        while is_more and len(found) < self.rules.sample:
            page = self.store.episodes.page(EpisodeFilter(hidden_kinds=NOT_MERGED), PAGE, cursor)
            linked = self.store.consolidation.links([episode.episode_id for episode in page.items])
            for episode in page.items:
                is_kept = episode.episode_id in linked or PINNED in episode.tags
                mean = None if is_kept else self._mean(space, episode.episode_id)
                if mean is not None and len(found) < self.rules.sample:
                    found.append(episode)
                    means.append(mean)
            cursor, is_more = page.next_cursor, page.next_cursor is not None
        return found, np.stack(means) if means else np.zeros((0, space.dim), np.float32)

    def _mean(self, space: Space, episode_id: str) -> NDArray[np.float32] | None:
        variant = Variant.TEXT if Variant.TEXT in space.variants else space.variants[0]
        ids = [stored.passage_id for stored in self.store.episodes.passages_of(episode_id)]
        held = self.store.vectors.get(space.key, variant, ids)
        if not ids or len(held) < len(ids):
            return None
        mean: NDArray[np.float32] = np.mean([held[key] for key in ids], axis=0)
        return mean / max(float(np.linalg.norm(mean)), 1e-9)

    def _apply(self, wanted: Sequence[tuple[Proposal, list[Episode]]]) -> tuple[list[Proposal], str]:
        """Return the outcome of each proposal, and why the LLM is no longer asked."""
        if self.llm.open is None:
            return [proposal for proposal, _ in wanted], "no LLM is set; see the setting summarizer"
        try:
            backend = self.llm.open()
        except (BadSetting, LlmRefused) as exc:
            return [proposal for proposal, _ in wanted], str(exc)
        done: list[Proposal] = []
        problem = ""
        with closing(backend):
            asking = _Asking(self, backend)
            for proposal, members in wanted:
                done.append(proposal if problem else asking.merged(proposal, members))
                problem = problem or asking.problem
        return done, problem

    def write(self, members: Sequence[Episode], said: ParsedReply, model: str) -> str | None:
        """Store the merged episode. Return its id; None when a member has changed meanwhile."""
        newest = max(members, key=lambda member: member.timestamp)
        ids = sorted(member.episode_id for member in members)
        in_order = sorted(members, key=lambda member: (member.timestamp, member.episode_id))
        texts = [f"{m.timestamp:%Y-%m-%d %H:%M} ({m.episode_id}):\n{text_of(m)}" for m in in_order]
        disagreements = [record.text for record in said.records]
        metadata = {"consolidated_from": ids, "disagreements": disagreements, "model": model}
        merged = with_masks_counted(
            Episode(
                episode_id=f"merged_{content_id(*ids, *(m.content_hash for m in in_order))}",
                source="direct",
                timestamp=newest.timestamp,
                instance=newest.instance,
                project=newest.project,
                kind=MERGED_KIND,
                summary=" ".join([said.text, *disagreements]),
                raw_exchange="\n\n".join(texts),
                tags=tuple(dict.fromkeys([*chain.from_iterable(m.tags for m in in_order), *said.tags]))[:MAX_TAGS],
                metadata=metadata,
            )
        )
        merged = replace(merged, **self.poster.cleaned({"summary": merged.summary, "tags": merged.tags}))
        passages = posted_passages(self.store, merged, self.pieces, without=[m.episode_id for m in members])
        if not self.store.consolidation.merge(merged, passages, members):
            return None
        self.poster.embed([merged.episode_id])
        return merged.episode_id


class _Asking:
    """Calls of one run to one backend. `problem`: why no more are made."""

    def __init__(self, merger: Merger, backend: Provider) -> None:
        self._merger, self._backend = merger, backend
        store, llm = merger.store, merger.llm
        rules = replace(llm.rules, min_chars=0, min_value=float("-inf"))
        self._private = llm.private_sources()
        self._choice = LlmChoice(store, rules, is_local=backend.is_local, private_sources=self._private)
        pace = Pace(rules.budget, rules.requests_per_minute)
        self._caller = LlmCaller(store, backend, pace, llm.mask, clock=llm.clock, sleep=llm.sleep)
        self.problem = ""

    def merged(self, proposal: Proposal, members: Sequence[Episode]) -> Proposal:
        """Return the outcome of one cluster."""
        # a post is wrapped as a chunk: chunks decide what is private
        stored = {part.part_id: part for part in self._merger.store.forgetting.parts([m.episode_id for m in members])}
        parts = [stored.get(member.episode_id) or _as_part(member) for member in members]
        of_private_source = any(member.source in self._private for member in members)  # merged episodes have none
        if of_private_source or any(self._choice.against(part) for part in parts):
            return replace(proposal, outcome="private")
        if sum(len(text_of(member)) for member in members) > MAX_CHARS:
            return replace(proposal, outcome="too long")
        prompt = merge_prompt(members)
        masked, _ = self._merger.llm.mask(prompt.text)
        request = request_for(replace(prompt, text=masked), self._backend.name, self._backend.model)
        if not all(self._merger.store.llm.note_asked({request.key: part}) for part in parts):
            return replace(proposal, outcome="changed")

        def check(reply: str) -> ParsedReply:
            return parse_reply(reply, prompt.message_ids, strict=True)

        answer = self._caller.ask(request, check, check)
        if not isinstance(answer, Answer):
            self.problem = answer.problem if answer.ends_the_run else ""
            return replace(proposal, outcome="no answer")
        said = check(answer.text)
        if said.skip:
            return replace(proposal, outcome="not the same")
        merged_into = self._merger.write(members, said, self._backend.model)
        return replace(proposal, outcome="merged" if merged_into else "changed", merged_into=merged_into)


def _as_part(episode: Episode) -> Part:
    said = Segment(episode.episode_id, "", SegmentKind.STATEMENT, 0, text_of(episode), episode.timestamp)
    return Part(
        episode.episode_id,
        episode.source,
        "",
        "",
        episode.episode_id,
        0,
        episode.kind,
        episode.project,
        "",
        "",
        (said,),
        closed=True,
    )
