"""Background embedding of posted episodes: keyword search finds them at once, semantic search once they are embedded. A
post would otherwise wait for the model, behind all other callers.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from anamnesis_pipeline.embeddings.base import Embedder
from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.model import Space, StoredPassage
from anamnesis_pipeline.pipeline.embed import embed_passages
from anamnesis_pipeline.store.base import Store

MAX_WAITING = 5_000
"""Max queued passages, some 3 MB of text; the pipeline embeds the rest."""
WAIT_S = 0.25
"""Max seconds that a post waits for its vectors. A machine that keeps up has them by then; faster clients are slowed a
little."""
TOGETHER = 32
"""Max passages per model call; a search waits for at most one call."""

log = logging.getLogger(__name__)


class PostedVectors:
    """Embed posted passages, in order, in a background thread. Safe to share between threads."""

    def __init__(self, store: Store, embedder_of: Callable[[Space], tuple[Space, Embedder]]) -> None:
        """:param embedder_of: active space -> the space to search now, and its embedder."""
        self._store, self._embedder_of = store, embedder_of
        self._waiting: deque[StoredPassage] = deque()
        self._changed = threading.Condition()
        self._added = self._done = 0
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="posted-vectors", daemon=True)
        self._thread.start()

    def add(self, passages: Sequence[StoredPassage], _space: Space) -> None:
        """Queue passages for the space searched at that time; leave the overflow to the pipeline. Return when they are
        embedded, or after `WAIT_S`.
        """
        with self._changed:
            room = MAX_WAITING - len(self._waiting)
            self._waiting.extend(passages[:room])
            self._added += len(passages[:room])
            last = self._added
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._done >= last or self._closed, WAIT_S)
        if len(passages) > room:
            log.info("%d passages are embedded by the pipeline: %d wait already", len(passages) - room, MAX_WAITING)

    def wait(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` seconds; return whether the queue is finished."""
        with self._changed:
            return self._changed.wait_for(lambda: self._done == self._added, timeout_s)

    def close(self) -> None:
        """Stop after the current model call; the pipeline embeds the queued rest."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                together = list(islice(self._waiting, TOGETHER))
                for _ in together:
                    self._waiting.popleft()
            try:
                self._embed(together)
            except AnamnesisError as exc:  # the passages are stored; the pipeline embeds them later
                log.info("%d passages are found by their words now, by meaning later: %s", len(together), exc)
            except Exception:  # one bad post must not stop the queue
                log.exception("%d posted passages were not embedded; the pipeline tries them again", len(together))
            with self._changed:
                self._done += len(together)
                self._changed.notify_all()

    def _embed(self, passages: Sequence[StoredPassage]) -> None:
        """Embed those passages that still exist and lack a vector."""
        if (active := self._store.spaces.active()) is None:
            return
        space, embedder = self._embedder_of(active)
        ids = [passage.passage_id for passage in passages]
        live = self._store.episodes.passages(ids)
        have = [self._store.vectors.get(space.key, variant, ids) for variant in space.variants]
        lacking = [
            each for each in passages if each.passage_id in live and any(each.passage_id not in found for found in have)
        ]
        if lacking:
            embed_passages(self._store, space, lacking, embedder)
