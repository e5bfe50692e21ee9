"""What the search indexes are made of. Pure.

Analyzers and field types: https://www.mongodb.com/docs/atlas/atlas-search/analyzers/custom/ and
https://www.mongodb.com/docs/atlas/atlas-search/define-field-mappings/; vectors:
https://www.mongodb.com/docs/atlas/atlas-vector-search/vector-search-type/.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.facets import FACETS
from anamnesis_pipeline.unspaced_scripts import paired, parted

Quantization = Literal["none", "scalar", "binary"]

STEM, EXACT = "stem", "exact"

_NUMBERS = ("at", "read_often", "seq")
"""Of what is filtered by, these are numbers, the others texts. All fit 64 bits, and `at` not the 53 of a double."""

_BETWEEN_WORDS = r"(?U)[\W_]+"
"""Where SQLite's `unicode61` divides a text, too: at all but letters, digits and marks. `standard` would keep
`SAVE_CONFIG` and `192.168.1.20` whole.
"""


UNSPACED = {"text": "text_unspaced", "context": "context_unspaced"}
"""Field of a passage -> the one with its words that hold scripts without spaces, as they are indexed."""


def unspaced_fields(text: str, context: str) -> dict[str, str]:
    """The fields of `UNSPACED` for a passage: what stands between white space there and the analyzer would take for one
    word. Most passages have none of it, and no such field.
    """
    found = {}
    for name, whole in (("text", text), ("context", context)):
        if words := [word for word in whole.split() if parted(word) != word]:
            found[UNSPACED[name]] = paired(" ".join(words))
    return found


def text_definition() -> Document:
    """The index of full text over passages: `text` and `context` stemmed and folded, and so what `unspaced_fields` says
    of them; `terms` as they are.
    """
    analyzed = {**dict.fromkeys(("text", "context", *UNSPACED.values()), STEM), "terms": EXACT}
    fields = {name: _string(analyzer) for name, analyzer in analyzed.items()}
    return {
        "mappings": {"dynamic": False, "fields": fields | {name: _value(name) for name in (*FACETS, "seq")}},
        "analyzers": [
            {
                "name": STEM,
                "tokenizer": {"type": "regexSplit", "pattern": _BETWEEN_WORDS},
                "tokenFilters": [{"type": "icuFolding"}, {"type": "porterStemming"}],
            },
            {"name": EXACT, "tokenizer": {"type": "whitespace"}, "tokenFilters": [{"type": "lowercase"}]},
        ],
    }


def vector_definition(dim: int, variants: Iterable[str], quantization: Quantization) -> Document:
    """The index of a space's vectors. Stored ones have length 1 but for float16's rounding, so that `dotProduct` is
    their cosine, and the very product that an exact scan computes.
    """
    how = {"quantization": quantization} if quantizes(dim, quantization) else {}
    shape = {"type": "vector", "numDimensions": dim, "similarity": "dotProduct"} | how
    vectors = [{**shape, "path": str(variant)} for variant in variants]
    return {"fields": [*vectors, *({"type": "filter", "path": name} for name in (*FACETS, "seq"))]}


def quantizes(dim: int, quantization: Quantization) -> bool:
    """Whether vectors of this width are held coarser than they are. Binary ones want a multiple of 8."""
    return quantization == "scalar" or (quantization == "binary" and dim % 8 == 0)


def digest(definition: Mapping[str, Any]) -> str:
    """Tells definitions apart, in the names of their indexes: a server does not give one back as it got it."""
    text = json.dumps(definition, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _string(analyzer: str) -> Document:
    """Phrases need positions; nothing is highlighted, and so no text is kept."""
    return {"type": "string", "analyzer": analyzer, "indexOptions": "positions", "store": False}


def _value(name: str) -> Document:
    return {"type": "number", "representation": "int64"} if name in _NUMBERS else {"type": "token"}
