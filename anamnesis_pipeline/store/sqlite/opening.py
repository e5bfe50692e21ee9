"""Opening the embedded store."""

from pathlib import Path

from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.archive import ArchiveRecords
from anamnesis_pipeline.store.records.chat import ChatRecords
from anamnesis_pipeline.store.records.consolidation import ConsolidationRecords
from anamnesis_pipeline.store.records.context import ContextRecords
from anamnesis_pipeline.store.records.documents import DocumentRecords
from anamnesis_pipeline.store.records.episodes import EpisodeRecords
from anamnesis_pipeline.store.records.events import EventRecords
from anamnesis_pipeline.store.records.exclusion import ExclusionRecords
from anamnesis_pipeline.store.records.files import FileRecords
from anamnesis_pipeline.store.records.forgetting import ForgetRecords
from anamnesis_pipeline.store.records.llm import LlmRecords
from anamnesis_pipeline.store.records.messages import MessageRecords
from anamnesis_pipeline.store.records.parts import PartRecords
from anamnesis_pipeline.store.records.projects import ProjectRecords
from anamnesis_pipeline.store.records.queries import QueryRecords
from anamnesis_pipeline.store.records.sessions import SessionRecords
from anamnesis_pipeline.store.records.settings import SettingsRecords
from anamnesis_pipeline.store.records.summaries import SummaryRecords
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.copying import SqliteCopy
from anamnesis_pipeline.store.sqlite.engine import SqliteGateway
from anamnesis_pipeline.store.sqlite.filters import PassingPassages
from anamnesis_pipeline.store.sqlite.fulltext import SqliteTextIndex
from anamnesis_pipeline.store.sqlite.native import SqliteNative
from anamnesis_pipeline.store.sqlite.overview import SqliteOverview
from anamnesis_pipeline.store.sqlite.schema import index_texts, make_missing_tables, migrate
from anamnesis_pipeline.store.sqlite.scrubbing import Scrubbing
from anamnesis_pipeline.store.sqlite.spaces import SqliteSpaces
from anamnesis_pipeline.store.sqlite.vectors import SqliteVectors


def open_sqlite(path: Path, index_dir: Path) -> Store:
    """Open, and create or migrate if need be, the store in the file `path`.

    :param index_dir: folder of the derived vector index files; safe to delete.
    :raises StoreCorrupt: the file is damaged, of a newer version, or another program's.
    """
    database = Database(path)
    try:
        migrate(database)
        make_missing_tables(database)
        index_texts(database)
    except BaseException:
        database.close()
        raise
    few, gateway, native = PassingPassages(), SqliteGateway(database), SqliteNative()
    return Store(
        gateway=gateway,
        files=FileRecords(gateway),
        archive=ArchiveRecords(gateway),
        messages=MessageRecords(gateway, native),
        parts=PartRecords(gateway),
        projects=ProjectRecords(gateway, native),
        summaries=SummaryRecords(gateway),
        documents=DocumentRecords(gateway),
        episodes=EpisodeRecords(gateway, native),
        text=SqliteTextIndex(database, few),
        vectors=SqliteVectors(database, index_dir, few),
        spaces=SqliteSpaces(database, index_dir),
        llm=LlmRecords(gateway),
        settings=SettingsRecords(gateway),
        forgetting=ForgetRecords(gateway, native, Scrubbing(database, index_dir)),
        exclusion=ExclusionRecords(gateway),
        context=ContextRecords(gateway),
        consolidation=ConsolidationRecords(gateway, native),
        sessions=SessionRecords(gateway, native),
        queries=QueryRecords(gateway),
        events=EventRecords(gateway),
        chat=ChatRecords(gateway),
        overview=SqliteOverview(database),
        copies=SqliteCopy(database),
        close=database.close,
    )
