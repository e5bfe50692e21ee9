"""The contract of a store. One deployment has one store; every backend passes
`anamnesis_tests/store/test_contract_*.py`.

A `Store` is a handle that bundles one object per subject. Every write is one short transaction, idempotent, and
visible to other processes when the call returns. Writes of more than `MAX_ROWS_PER_WRITE` rows are split.
Adapters raise `StoreBusy` (try again), `StoreFull`, `StoreCorrupt`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from anamnesis_pipeline.store.contracts import Native, TextIndex, VectorIndex
from anamnesis_pipeline.store.copying import CopyRecords
from anamnesis_pipeline.store.gateway import Gateway
from anamnesis_pipeline.store.records.chat import ChatRecords
from anamnesis_pipeline.store.records.consolidation import ConsolidationRecords
from anamnesis_pipeline.store.records.context import ContextRecords
from anamnesis_pipeline.store.records.documents import DocumentRecords
from anamnesis_pipeline.store.records.entities import EntityRecords
from anamnesis_pipeline.store.records.episodes import EpisodeRecords
from anamnesis_pipeline.store.records.events import EventRecords
from anamnesis_pipeline.store.records.exclusion import ExclusionRecords
from anamnesis_pipeline.store.records.files import ArchiveRecords, FileRecords
from anamnesis_pipeline.store.records.forgetting import ForgetRecords, Traces
from anamnesis_pipeline.store.records.llm import LlmRecords
from anamnesis_pipeline.store.records.messages import MessageRecords
from anamnesis_pipeline.store.records.observations import ObservationRecords
from anamnesis_pipeline.store.records.overview import OverviewRecords
from anamnesis_pipeline.store.records.parts import PartRecords
from anamnesis_pipeline.store.records.projects import ProjectRecords
from anamnesis_pipeline.store.records.proposals import ProposalRecords
from anamnesis_pipeline.store.records.queries import QueryRecords
from anamnesis_pipeline.store.records.sessions import SessionRecords
from anamnesis_pipeline.store.records.settings import SettingsRecords
from anamnesis_pipeline.store.records.spaces import SpaceRecords
from anamnesis_pipeline.store.records.statuses import StatusRecords
from anamnesis_pipeline.store.records.summaries import SummaryRecords


@dataclass(frozen=True, slots=True)
class Store:
    """An open store. Safe to share between threads; every process opens its own."""

    gateway: Gateway
    """The engine itself, e.g. for records of a table of one's own."""
    files: FileRecords
    archive: ArchiveRecords
    messages: MessageRecords
    parts: PartRecords
    projects: ProjectRecords
    summaries: SummaryRecords
    documents: DocumentRecords
    episodes: EpisodeRecords
    statuses: StatusRecords
    observations: ObservationRecords
    proposals: ProposalRecords
    entities: EntityRecords
    text: TextIndex
    vectors: VectorIndex
    spaces: SpaceRecords
    llm: LlmRecords
    settings: SettingsRecords
    forgetting: ForgetRecords
    exclusion: ExclusionRecords
    context: ContextRecords
    consolidation: ConsolidationRecords
    sessions: SessionRecords
    queries: QueryRecords
    events: EventRecords
    chat: ChatRecords
    overview: OverviewRecords
    copies: CopyRecords
    close: Callable[[], None]
    """Closes its connections; calling twice is harmless."""

    @classmethod
    def over(
        cls,
        gateway: Gateway,
        native: Native,
        traces: Traces,
        *,
        text: TextIndex,
        vectors: VectorIndex,
        spaces: SpaceRecords,
        overview: OverviewRecords,
        copies: CopyRecords,
        close: Callable[[], None],
    ) -> "Store":
        """Return the store of an engine: the classes of `records/` over it, and what it does in its own form."""
        return cls(
            gateway=gateway,
            files=FileRecords(gateway),
            archive=ArchiveRecords(gateway),
            messages=MessageRecords(gateway, native),
            parts=PartRecords(gateway),
            projects=ProjectRecords(gateway, native),
            summaries=SummaryRecords(gateway),
            documents=DocumentRecords(gateway),
            episodes=EpisodeRecords(gateway, native),
            statuses=StatusRecords(gateway),
            observations=ObservationRecords(gateway),
            proposals=ProposalRecords(gateway, native),
            entities=EntityRecords(gateway),
            llm=LlmRecords(gateway),
            settings=SettingsRecords(gateway),
            exclusion=ExclusionRecords(gateway),
            context=ContextRecords(gateway),
            consolidation=ConsolidationRecords(gateway, native),
            sessions=SessionRecords(gateway, native),
            queries=QueryRecords(gateway),
            events=EventRecords(gateway),
            chat=ChatRecords(gateway),
            forgetting=ForgetRecords(gateway, native, traces),
            text=text,
            vectors=vectors,
            spaces=spaces,
            overview=overview,
            copies=copies,
            close=close,
        )
