"""Vectors for what clients post, made behind the answer: the text is found by its words at once, by meaning once the
model is through. A post would wait for the model otherwise, behind all others that do.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from anamnesis_pipeline.embeddings.base import Embedder
from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.model import Space, StoredPassage
from anamnesis_pipeline.steps.embeddings import embed_passages
from anamnesis_pipeline.store.base import Store

MAX_WAITING = 5_000
"""Passages that wait, some 3 MB of text; the pipeline embeds what comes beyond."""
WAIT_S = 0.25
"""A post waits at most so long for its vectors: on a machine that keeps up they are there when it is answered, and
those who post faster than it embeds are slowed a little."""
TOGETHER = 32
"""Passages that go to the model in one call; a search waits for one at most."""

log = logging.getLogger(__name__)


class PostedVectors:
    """Embeds what was posted, in order, on a thread of its own. Safe to share between threads."""

    def __init__(self, store: Store, embedder_of: Callable[[Space], tuple[Space, Embedder]]) -> None:
        """:param embedder_of: the space that is searched now, given the active one, and what embeds into it."""
        self._store, self._embedder_of = store, embedder_of
        self._waiting: deque[StoredPassage] = deque()
        self._changed = threading.Condition()
        self._added = self._done = 0
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="posted-vectors", daemon=True)
        self._thread.start()

    def add(self, passages: Sequence[StoredPassage], _space: Space) -> None:
        """Have these embedded soon, into the space that is searched then; what is too much is left to the pipeline.
        Returns when they are, or after `WAIT_S`.
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
        """Whether everything that was added is done with within so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._done == self._added, timeout_s)

    def close(self) -> None:
        """End once what is with the model is done; the pipeline embeds what waits."""
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
            except AnamnesisError as exc:  # it is stored, and the pipeline finds that it lacks a vector
                log.info("%d passages are found by their words now, by meaning later: %s", len(together), exc)
            except Exception:  # one post that cannot be embedded is no reason to leave out all that follow
                log.exception("%d posted passages were not embedded; the pipeline tries them again", len(together))
            with self._changed:
                self._done += len(together)
                self._changed.notify_all()

    def _embed(self, passages: Sequence[StoredPassage]) -> None:
        """Vectors for those of these that are still there and lack one."""
        if (active := self._store.spaces.active()) is None:
            return
        space, embedder = self._embedder_of(active)
        ids = [passage.passage_id for passage in passages]
        live = self._store.episodes.passages(ids)
        have = [self._store.vectors.get(space.key, variant, ids) for variant in space.variants]
        lacking = [
            each for each in passages
            if each.passage_id in live and any(each.passage_id not in found for found in have)
        ]  # fmt: skip
        if lacking:
            embed_passages(self._store, space, lacking, embedder)
