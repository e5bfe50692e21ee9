"""Which hits are worth saying to somebody who did not ask. Pure."""

from collections.abc import Sequence

from anamnesis_pipeline.search.floor import ASKED_LEAST, UNASKED_LEAST
from anamnesis_pipeline.search.query import Hit
from anamnesis_pipeline.search.words import content_words, literal_tokens
from anamnesis_pipeline.stop_words import STOP_WORDS

LITERAL_LEAST = ASKED_LEAST
"""Confidence (`floor.confidence`) that is enough where a hit holds the prompt's literal tokens: naming one is asking.
Of 200 prompts on other people's work 5 name one that real logs hold, and one of these reaches it; of 200 that the logs
answer all 23 that name one do."""
STRANGER = 2.0
"""More of it that is needed where nothing is stored of the session's folder: only other projects might be meant, which
is taken to be e^2, some seven times, less likely. Of the prompts on other people's work 1.5% reach it, of the others
65%."""
BESIDE = 0.75
"""Nearness (`floor.nearness`) that is enough beside the best: the ranking knows more than the cosine. 0.3 in MiniLM:
of the first three hits one is the answer for 50 of 100 prompts, and for 33 at a cosine of 0.42."""


def says_what_it_asks(prompt: str) -> bool:
    """Whether a prompt names what it is about: `go on` does not."""
    words = [word for word in content_words(prompt) if word not in STOP_WORDS]
    return len(words) > 1 or bool(literal_tokens(prompt))


def telling(hits: Sequence[Hit], is_stranger: bool) -> list[Hit]:
    """The hits worth saying, in their order; none unless they are sure enough to answer. A hit whose nearness is not
    known is none: while the model loads, or a space is not measured yet, nothing is said.

    :param hits: of a search that explains itself, in a profile that keeps the floor.
    :param is_stranger: nothing is stored of the session's folder.
    """
    sure = next((sure for hit in hits if (sure := stage_of(hit, "confidence")) is not None), None)
    names = any("exact" in (hit.explanation or {}) for hit in hits)
    least = LITERAL_LEAST if names else UNASKED_LEAST  # a search keeps no floor while something lacks vectors
    if sure is None or sure < (UNASKED_LEAST + STRANGER if is_stranger else least):
        return []
    return [hit for hit in hits if (near := stage_of(hit, "nearness")) is not None and near >= BESIDE]


def stage_of(hit: Hit, name: str) -> float | None:
    """What a stage gave, of a search that explains itself, e.g. `confidence`; None: it gave nothing."""
    stages = (hit.explanation or {}).get("stages", {})
    value = stages.get(name) if isinstance(stages, dict) else None
    return float(value) if isinstance(value, int | float) else None
