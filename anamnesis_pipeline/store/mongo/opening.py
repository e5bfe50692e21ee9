"""Opening the store in MongoDB."""

import logging
import time
from collections.abc import Callable
from typing import Literal, TypeVar

import pymongo

from anamnesis_pipeline.errors import StoreBusy
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.mongo.client import Database
from anamnesis_pipeline.store.mongo.copying import MongoCopy
from anamnesis_pipeline.store.mongo.engine import MongoGateway, MongoTraces
from anamnesis_pipeline.store.mongo.fulltext import MongoTextIndex
from anamnesis_pipeline.store.mongo.native import MongoNative
from anamnesis_pipeline.store.mongo.overview import MongoOverview
from anamnesis_pipeline.store.mongo.schema import prepare
from anamnesis_pipeline.store.mongo.search_indexes import text_index
from anamnesis_pipeline.store.mongo.spaces import MongoSpaces
from anamnesis_pipeline.store.mongo.vectors import MongoVectors
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

log = logging.getLogger(__name__)
T = TypeVar("T")

ASKED_FOR_S = 5.0
"""So long one attempt to reach the server takes, and so often the log says what is waited for."""
PAUSE_S = 0.5


def open_mongo(
    uri: str, database: str, *, quantization: Literal["none", "scalar", "binary"] = "none", wait_s: float = 60.0
) -> Store:
    """Open, and prepare if need be, the store in a database of a replica set or of MongoDB Atlas.

    :param quantization: what the vector indexes of spaces hold instead of float32.
    :param wait_s: how long a primary may take to answer. The search service is not waited for: without it the store
        opens all the same, and searches by it are degraded.
    :raises StoreBusy: there is no primary within `wait_s`, or nobody who knows where it is.
    :raises GiveUp: the server refuses the user, or is none of a replica set.
    :raises BadSetting: `uri` is none.
    :raises StoreCorrupt: the database is of a newer version, or of another program.
    """
    until = time.monotonic() + wait_s
    held = _awaited(lambda: Database(uri, database), until)
    try:
        _awaited(lambda: _ask(held), until)
        prepare(held)
        passages = text_index()
        text = MongoTextIndex(held, passages)
        with pymongo.timeout(ASKED_FOR_S):
            text.prepare()
        return _store(held, text, MongoVectors(held, passages, quantization))
    except BaseException:
        held.close()
        raise


def _store(held: Database, text: MongoTextIndex, vectors: MongoVectors) -> Store:
    spaces, gateway, native = MongoSpaces(held, vectors.indexes), MongoGateway(held), MongoNative()
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
        text=text,
        vectors=vectors,
        spaces=spaces,
        llm=LlmRecords(gateway),
        settings=SettingsRecords(gateway),
        forgetting=ForgetRecords(gateway, native, MongoTraces(held)),
        exclusion=ExclusionRecords(gateway),
        context=ContextRecords(gateway),
        consolidation=ConsolidationRecords(gateway, native),
        sessions=SessionRecords(gateway, native),
        queries=QueryRecords(gateway),
        events=EventRecords(gateway),
        chat=ChatRecords(gateway),
        overview=MongoOverview(held),
        copies=MongoCopy(held, spaces, vectors.indexes),
        close=held.close,
    )


def _ask(held: Database) -> None:
    with pymongo.timeout(ASKED_FOR_S):
        held.command({"ping": 1}, admin=True)


def _awaited(work: Callable[[], T], until: float) -> T:
    """What `work` returns, once there is a primary; an election, or a server that starts, takes some seconds.

    :raises StoreBusy: there was none in time.
    """
    began = time.monotonic()
    while True:
        try:
            return work()
        except StoreBusy as exc:
            now = time.monotonic()
            if now + PAUSE_S >= until:
                raise
            log.warning("Waiting since %.0f s of at most %.0f: %s", now - began, until - began, exc)
        time.sleep(PAUSE_S)
