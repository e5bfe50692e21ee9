"""Embedding spaces as documents, and the collections of each."""

from dataclasses import dataclass

from anamnesis_pipeline.errors import SpaceNotFound
from anamnesis_pipeline.model import Space, Variant
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.vector_recall import EXACT_BELOW

ADDING, DROPPED = "adding", "dropped"
"""What a space is while it is made, and while what it had is removed. It is then shown to nobody, and whoever adds or
drops its key next goes on where that ended.
"""
SPACE_FIELDS = (
    "key", "model_id", "dim", "generation", "query_prefix", "passage_prefix", "pooling", "precision", "fidelity",
    "variants", "token_dims", "token_variant", "status",
)  # fmt: skip
_DOC_FIELDS = ("_id", "key", "dim", "status", "token_dims", "variants", "index_recall")


@dataclass(frozen=True, slots=True)
class SpaceDoc:
    """What the vectors of a space are found by."""

    space_id: int
    key: str
    dim: int
    status: str
    token_dims: int
    variants: tuple[Variant, ...]
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


def space_fields(space: Space) -> Document:
    """Its fields as they are stored."""
    return {name: getattr(space, name) for name in SPACE_FIELDS} | {
        "variants": list(map(str, space.variants)),
        "token_variant": str(space.token_variant),
    }


def read_space(document: Document) -> Space:
    """The inverse of `space_fields`."""
    fields = {name: document[name] for name in SPACE_FIELDS}
    fields["variants"] = tuple(map(Variant, document["variants"]))
    fields["token_variant"] = Variant(document["token_variant"])
    return Space(**fields)


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
    """The space of this key.

    :raises SpaceNotFound: there is none.
    """
    known = {doc.key: doc for doc in live_spaces(tables) if doc.status != ADDING}
    if (found := known.get(key)) is not None:
        return found
    raise SpaceNotFound(
        f"no space {key}, it was never added or was dropped; known are: {', '.join(known) or 'none yet'}"
    )


def space_with_status(tables: Tables, status: str) -> Space | None:
    """The space of a status that at most one has: `active` or `building`."""
    found = tables["spaces"].one({"status": status}, SPACE_FIELDS)
    return None if found is None else read_space(found)
