"""Notes which episodes a process begins to embed; Python imports this at its start where PYTHONPATH names the folder.

Work that a killed process never wrote leaves no trace in the store. The end-to-end tests see it here, without any code
for tests in the product: `System.embedded_twice` counts the episodes that were embedded more than once.

Here what embeds gives way to nothing, either: work that waits for an idle core would wait for all other tests.
"""

import functools
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

JOURNAL_VARIABLE = "EMBEDDING_JOURNAL"


class ChangingFinder(MetaPathFinder):
    """Finds the modules of `CHANGED` as Python does, and puts another function in the place of one of each."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in CHANGED:
            return None
        function, changed = CHANGED[fullname]
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_wrap(module: ModuleType) -> None:
            execute(module)
            setattr(module, function, changed(getattr(module, function)))

        spec.loader.exec_module = execute_and_wrap  # type: ignore[method-assign]
        return spec


def noting(embed: Callable[..., int]) -> Callable[..., int]:
    """Append the episodes to the journal before they are embedded: a kill comes at any time."""

    @functools.wraps(embed)
    def note_and_embed(store: Any, space: Any, passages: Sequence[Any], embedder: Any) -> int:
        episodes = list(dict.fromkeys(stored.episode_id for stored in passages))
        line = json.dumps({"process": os.getpid(), "space": space.key, "episodes": episodes}) + "\n"
        journal = os.open(os.environ[JOURNAL_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(journal, line.encode())
        finally:
            os.close(journal)
        return embed(store, space, passages, embedder)

    return note_and_embed


def doing_nothing(_: Callable[..., None]) -> Callable[..., None]:
    """Ranks no thread."""
    return lambda *_: None


CHANGED: dict[str, tuple[str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = {
    "anamnesis_pipeline.pipeline.embed": ("embed_passages", noting),
    "anamnesis_pipeline.embeddings.cores": ("rank_this_thread", doing_nothing),
}
"""Module -> the name of a function in it, and what makes the other one of that."""

if JOURNAL_VARIABLE in os.environ:
    sys.meta_path.insert(0, ChangingFinder())
