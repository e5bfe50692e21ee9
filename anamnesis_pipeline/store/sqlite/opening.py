"""Opening the embedded store."""

from pathlib import Path

from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite.chat_rows import SqliteChat
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.consolidation import SqliteConsolidation
from anamnesis_pipeline.store.sqlite.context_rows import SqliteContext
from anamnesis_pipeline.store.sqlite.copying import SqliteCopy
from anamnesis_pipeline.store.sqlite.document_rows import SqliteDocuments
from anamnesis_pipeline.store.sqlite.episodes import SqliteEpisodes
from anamnesis_pipeline.store.sqlite.event_rows import SqliteEvents
from anamnesis_pipeline.store.sqlite.exclusion import SqliteExclusion
from anamnesis_pipeline.store.sqlite.forgetting import SqliteForgetting
from anamnesis_pipeline.store.sqlite.fulltext import SqliteTextIndex
from anamnesis_pipeline.store.sqlite.ingest_records import SqliteIngest
from anamnesis_pipeline.store.sqlite.llm_records import SqliteLlm
from anamnesis_pipeline.store.sqlite.overview import SqliteOverview
from anamnesis_pipeline.store.sqlite.passing import PassingPassages
from anamnesis_pipeline.store.sqlite.query_rows import SqliteQueries
from anamnesis_pipeline.store.sqlite.schema import index_texts, migrate
from anamnesis_pipeline.store.sqlite.scrubbing import Scrubbing
from anamnesis_pipeline.store.sqlite.session_records import SqliteSessions
from anamnesis_pipeline.store.sqlite.settings import SqliteSettings
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
        index_texts(database)
    except BaseException:
        database.close()
        raise
    few = PassingPassages()
    return Store(
        ingest=SqliteIngest(database),
        documents=SqliteDocuments(database),
        episodes=SqliteEpisodes(database),
        text=SqliteTextIndex(database, few),
        vectors=SqliteVectors(database, index_dir, few),
        spaces=SqliteSpaces(database, index_dir),
        llm=SqliteLlm(database),
        settings=SqliteSettings(database),
        forgetting=SqliteForgetting(database, Scrubbing(database, index_dir)),
        exclusion=SqliteExclusion(database),
        context=SqliteContext(database),
        consolidation=SqliteConsolidation(database),
        sessions=SqliteSessions(database),
        queries=SqliteQueries(database),
        events=SqliteEvents(database),
        chat=SqliteChat(database),
        overview=SqliteOverview(database),
        copies=SqliteCopy(database),
        close=database.close,
    )
