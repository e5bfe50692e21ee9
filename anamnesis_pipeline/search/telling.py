"""Which hits are worth saying to somebody who did not ask. Pure."""

from collections.abc import Sequence

from anamnesis_pipeline.search.floor import UNASKED_LEAST
from anamnesis_pipeline.search.query import Hit
from anamnesis_pipeline.search.words import content_words, literal_tokens
from anamnesis_pipeline.stop_words import STOP_WORDS

LITERAL_LEAST = UNASKED_LEAST - 1.0
"""Confidence (`floor.confidence`) that is enough where a hit holds the prompt's literal tokens: less reaches none."""
STRANGER = 2.0
"""More of it that is needed where nothing is stored of the session's folder: only other projects might be meant."""
FLOOR, STRANGER_FLOOR = 0.42, 0.55
"""Cosine that the closest hit must have where no confidence is known, in spaces without token vectors, and the same in
a strange folder. Of 100 prompts that real logs answer 88 have such a hit, of 100 on other work 6 (MiniLM)."""
BESIDE = 0.3
"""Cosine that is enough beside the best: the ranking knows more than the cosine. Of the first three hits one is the
answer for 50 of 100 prompts at 0.3, for 33 at 0.42."""


def says_what_it_asks(prompt: str) -> bool:
    """Whether a prompt names what it is about: `go on` does not."""
    words = [word for word in content_words(prompt) if word not in STOP_WORDS]
    return len(words) > 1 or bool(literal_tokens(prompt))


def telling(hits: Sequence[Hit], is_stranger: bool) -> list[Hit]:
    """The hits worth saying, in their order; none unless they are sure enough to answer. A hit without a cosine is
    none: while the model loads nothing is said.

    :param hits: of a search that explains itself, in a profile that keeps the floor.
    :param is_stranger: nothing is stored of the session's folder.
    """
    sure = next((c for hit in hits if (c := _confidence(hit)) is not None), None)
    if sure is not None:
        is_enough = sure >= (UNASKED_LEAST + STRANGER if is_stranger else LITERAL_LEAST)
    else:
        closest = max((hit.similarity or 0.0 for hit in hits), default=0.0)
        is_enough = closest >= (STRANGER_FLOOR if is_stranger else FLOOR)
    return [hit for hit in hits if is_enough and (hit.similarity or 0.0) >= BESIDE]


def _confidence(hit: Hit) -> float | None:
    stages = (hit.explanation or {}).get("stages", {})
    sure = stages.get("confidence") if isinstance(stages, dict) else None
    return float(sure) if isinstance(sure, int | float) else None
