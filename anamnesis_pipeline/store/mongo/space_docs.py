"""Embedding spaces as documents, and the collections of each."""

from dataclasses import dataclass

from anamnesis_pipeline.model import Variant
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.records.spaces import ADDING, DROPPED, STORED_FIELDS, StoredSpace, space_not_found
from anamnesis_pipeline.store.vector_values import EXACT_BELOW

_DOC_FIELDS = ("_id", *STORED_FIELDS[1:], "index_recall")


@dataclass(frozen=True, slots=True)
class SpaceDoc(StoredSpace):
    """A stored space, with what is known of its search index."""

    index_recall: float | None = None
    """Share of the ten nearest that its search index found when that was last measured, in [0, 1]."""

    @property
    def is_exact(self) -> bool:
        """Whether its search index finds so little that it is asked to compare every vector."""
        return self.index_recall is not None and self.index_recall < EXACT_BELOW


def vectors_name(space_key: str) -> str:
    """The collection of a space's vectors."""
    return f"vectors_{space_key}"


def tokens_name(space_key: str) -> str:
    """The collection of a space's token vectors."""
    return f"tokens_{space_key}"


def seq_counter(collection: str) -> str:
    """The counter that `seq` of a collection is taken from: `passages`, or one of vectors."""
    return f"{collection}_seq"


def read_doc(document: Document) -> SpaceDoc:
    """What the vectors of a stored space are found by."""
    return SpaceDoc(
        space_id=document["_id"],
        key=document["key"],
        dim=document["dim"],
        status=document["status"],
        token_dims=document["token_dims"],
        variants=tuple(map(Variant, document["variants"])),
        index_recall=document.get("index_recall"),
    )


def live_spaces(tables: Tables) -> list[SpaceDoc]:
    """Spaces that vectors may be expected of, those that are being added included."""
    found = tables["spaces"].find({"status": {"$ne": DROPPED}}, _DOC_FIELDS, order=[("_id", 1)])
    return list(map(read_doc, found))


def find_space(tables: Tables, key: str) -> SpaceDoc:
    """Return the space of this key.

    :raises SpaceNotFound: there is none.
    """
    shown = [space for space in live_spaces(tables) if space.status != ADDING]
    for space in shown:
        if space.key == key:
            return space
    raise space_not_found(key, [space.key for space in shown])
