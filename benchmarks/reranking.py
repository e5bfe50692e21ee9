"""What a cross-encoder adds to a search: each question with it and without it in turn, in one process.

    python benchmarks/reranking.py [--home FOLDER] [--model NAME] [--questions N]

Without `--model` it is a model of the shape of `cross-encoder/ms-marco-MiniLM-L-6-v2` with random weights: the time is
that of the real one, the order means nothing. What a real one finds, the other benchmarks say with
ANAMNESIS_RERANK_MODEL set. `--home`: a home that holds the shared sessions already. Needs ../shared/data and
../shared/bench.
"""

import argparse
import json
import statistics
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from claude_qa import BENCH, copy_haystack, index

from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.embeddings.cross_encoder import CrossEncoderModel
from anamnesis_pipeline.embeddings.models import find_cross_encoder
from anamnesis_pipeline.embeddings.reranker import Reranker
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.profiles import PROFILES
from anamnesis_pipeline.search.query import SearchQuery
from anamnesis_pipeline.services.wiring import open_services
from anamnesis_pipeline.settings import Settings
from anamnesis_tests.support.tiny_models import random_cross_encoder

SHAPE = {"layers": 6, "dim": 384, "heads": 12}
NO_LIMIT_S = 600.0
PROFILE = {"with": PROFILES["default"], "without": replace(PROFILES["default"], rerank=False)}


def ready(engine: Engine) -> None:
    """Wait until both models are in memory.

    :raises RuntimeError: the cross-encoder does not load within five minutes.
    """
    for _ in range(600):
        notes = engine.search(SearchQuery("warm up")).degraded
        if not notes:
            return
        time.sleep(0.5)
    raise RuntimeError(notes[0])


def main() -> None:
    """Index, ask, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, help="a home with the shared sessions, instead of indexing them")
    parser.add_argument("--model", help="a real cross-encoder, by name or path")
    parser.add_argument("--questions", type=int, help="only so many")
    args = parser.parse_args()
    lines = (BENCH / "dev.jsonl").read_text(encoding="utf-8").splitlines()[: args.questions]
    questions = [json.loads(line)["question"] for line in lines]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = find_cross_encoder(args.model) if args.model else random_cross_encoder(folder / "model", **SHAPE)
        settings = Settings(home=args.home or folder / "home", log_roots=(folder / "logs",))
        if args.home is None:
            copy_haystack(folder / "logs")
            index(settings)
        with (
            closing(open_services(settings)) as services,
            closing(
                Reranker(str(model), lambda: CrossEncoderModel(str(model), model, "cpu"), available_cores, NO_LIMIT_S)
            ) as reranker,
        ):
            services.pool.load_in_background()
            models = services.pool
            engine = Engine(services.store, models.embed_query, models.space_for, rerank=reranker.scores)
            ready(engine)
            spent: dict[str, list[tuple[float, float]]] = {name: [] for name in PROFILE}
            for question in questions:
                engine.search(
                    SearchQuery(question, track=False, profile=PROFILE["without"])
                )  # neither pays for the first embedding of its text
                for name, profile in PROFILE.items():
                    started = time.perf_counter(), time.process_time()
                    engine.search(SearchQuery(question, top_k=10, track=False, profile=profile))
                    ended = time.perf_counter(), time.process_time()
                    spent[name].append((1000 * (ended[0] - started[0]), 1000 * (ended[1] - started[1])))
            started = time.process_time()
            for question in questions:
                models.pool.embed_with_tokens([question], "query")
            embedding = 1000 * (time.process_time() - started) / len(questions)
    for number, unit in enumerate(("ms", "ms of CPU")):
        middle = {name: statistics.median(each[number] for each in times) for name, times in spent.items()}
        more = middle["with"] - middle["without"]
        print(f"{middle['without']:.1f} {unit} without, {middle['with']:.1f} with: {more:.1f} more")
    print(
        f"a query's embedding, cached above: {embedding:.1f} ms of CPU; the cross-encoder: {more / embedding:.0f} times"
    )


if __name__ == "__main__":
    main()
