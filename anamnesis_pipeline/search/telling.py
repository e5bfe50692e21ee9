"""The recall gate: which hits to show without being asked. Pure."""

from collections.abc import Sequence

from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS
from anamnesis_pipeline.search.floor import MIN_ASKED, MIN_UNASKED
from anamnesis_pipeline.search.query import Hit
from anamnesis_pipeline.search.words import content_words, literal_tokens

MIN_LITERAL = MIN_ASKED
"""Sufficient confidence (`floor.confidence`) if a hit has the prompt's literal tokens: naming one is asking. Of 200
prompts on other people's work 5 name one that real logs hold, and one of these reaches it; of 200 that the logs answer
all 23 that name one do."""
STRANGER = 2.0
"""Additional confidence if nothing is stored of the session's folder: only other projects could be meant, which is
assumed to be e^2, about seven times, less likely. Of the prompts on other people's work 1.5% reach it, of the others
65%."""
BESIDE = 0.75
"""Sufficient nearness (`floor.nearness`) below the best hit: the ranking is better than the cosine. 0.3 in MiniLM: of
the first three hits one is the answer for 50 of 100 prompts, and for 33 at a cosine of 0.42."""
ASKED_HEAD, ASKED_TAIL = 1_500, 500
"""Characters searched for of a long prompt: text pasted between them says little about the question."""


def searched(prompt: str) -> str:
    """Return what to search for of a prompt."""
    return prompt if len(prompt) <= ASKED_HEAD + ASKED_TAIL else f"{prompt[:ASKED_HEAD]}\n{prompt[-ASKED_TAIL:]}"


def says_what_it_asks(prompt: str) -> bool:
    """Return whether a prompt names its subject: `go on` does not."""
    words = [word for word in content_words(prompt) if word not in STOP_WORDS]
    return len(words) > 1 or bool(literal_tokens(prompt))


def telling(hits: Sequence[Hit], is_stranger: bool) -> list[Hit]:
    """Return the hits to show, in order; none unless the confidence suffices. A hit without a known nearness is left
    out: while the model loads, or a space is not measured yet, nothing is shown.

    :param hits: of a search with explanations, in a profile with the relevance threshold.
    :param is_stranger: nothing is stored of the session's folder.
    """
    sure = next((sure for hit in hits if (sure := stage_of(hit, "confidence")) is not None), None)
    names = any("exact" in (hit.explanation or {}) for hit in hits)
    least = MIN_LITERAL if names else MIN_UNASKED  # a search has no threshold while vectors are missing
    if sure is None or sure < (MIN_UNASKED + STRANGER if is_stranger else least):
        return []
    return [hit for hit in hits if (near := stage_of(hit, "nearness")) is not None and near >= BESIDE]


def stage_of(hit: Hit, name: str) -> float | None:
    """Return the value of a stage of a search with explanations, e.g. `confidence`; None: there is none."""
    stages = (hit.explanation or {}).get("stages", {})
    value = stages.get(name) if isinstance(stages, dict) else None
    return float(value) if isinstance(value, int | float) else None
