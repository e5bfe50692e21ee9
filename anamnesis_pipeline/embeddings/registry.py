"""Known embedding models: the purpose of each, and the prefixes of its texts. Data only."""

from dataclasses import dataclass

MINILM = "all-MiniLM-L6-v2"


@dataclass(frozen=True, slots=True)
class KnownModel:
    """The content of the model's card. The model's files take precedence once they are downloaded.

    :param window: word pieces that the model reads of one text, including special ones.
    :param download_mb: approximate size of the weights in MB; 0 for one that comes with the installation.
    """

    model_id: str
    dim: int
    window: int
    licence: str
    download_mb: int
    description: str
    query_prefix: str = ""
    passage_prefix: str = ""


_BGE_QUERY = "Represent this sentence for searching relevant passages: "

KNOWN_MODELS = (
    KnownModel(MINILM, 384, 256, "Apache-2.0", 0, "English; small and fast, comes with the installation"),
    KnownModel(
        "sentence-transformers/all-MiniLM-L12-v2", 384, 128, "Apache-2.0", 133, "English; twice the layers of L6"
    ),
    KnownModel("sentence-transformers/all-mpnet-base-v2", 768, 384, "Apache-2.0", 438, "English; general purpose"),
    KnownModel(
        "BAAI/bge-small-en-v1.5", 384, 512, "MIT", 133, "English retrieval; as wide as MiniLM", query_prefix=_BGE_QUERY
    ),
    KnownModel(
        "BAAI/bge-large-en-v1.5",
        1024,
        512,
        "MIT",
        1_340,
        "English retrieval; recommended for deployments",
        query_prefix=_BGE_QUERY,
    ),
    KnownModel(
        "intfloat/multilingual-e5-small",
        384,
        512,
        "MIT",
        471,
        "some 100 languages; as wide as MiniLM",
        query_prefix="query: ",
        passage_prefix="passage: ",
    ),
    KnownModel(
        "intfloat/multilingual-e5-base",
        768,
        512,
        "MIT",
        1_110,
        "some 100 languages",
        query_prefix="query: ",
        passage_prefix="passage: ",
    ),
    KnownModel("ibm-granite/granite-embedding-125m-english", 768, 512, "Apache-2.0", 250, "English text and code"),
)


def known_model(model_id: str) -> KnownModel | None:
    """Return the entry of a model hub ID; the organisation may be left out of `sentence-transformers/...`."""
    wanted = model_id.removeprefix("sentence-transformers/")
    return next(
        (known for known in KNOWN_MODELS if known.model_id.removeprefix("sentence-transformers/") == wanted), None
    )
