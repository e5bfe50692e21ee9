"""The null-query baseline of a space: measure and store it."""

from collections.abc import Callable
from typing import Any

from anamnesis_pipeline.embeddings.base import QueryVectors
from anamnesis_pipeline.model import EpisodeFilter, Space
from anamnesis_pipeline.search.floor import BUILT_IN, Evidence, Level, level_of
from anamnesis_pipeline.search.words import unknown_share
from anamnesis_pipeline.store.base import Store

LEVEL = "level."
"""Prefix of the stored setting, before the key of the space."""
GROWN = 1.5
"""A space that has grown or shrunk by this factor is measured again: more passages mean nearer ones."""


def stored_level(store: Store, space: Space) -> Level | None:
    """Return the last measured baseline of a space, else its model's built-in one; None: there is neither."""
    row = store.settings.get(LEVEL + space.key)
    if row is None:
        return BUILT_IN.get(space.model_id)
    return Level(row["means"], row["spreads"], row["unknown"])


def is_due(store: Store, space: Space) -> bool:
    """Return whether to measure a space: it was not measured yet, or its size has changed."""
    now = store.vectors.progress(space.key).passages_done
    row: dict[str, Any] = store.settings.get(LEVEL + space.key) or {"passages": 0}
    return now > 0 and not row["passages"] / GROWN < now < row["passages"] * GROWN


def measure_level(store: Store, space: Space, embed_query: Callable[[str, Space], QueryVectors]) -> Level:
    """Search for unrelated questions and store the results with the space, which has vectors. About 10 ms a question.

    :raises RetryLater: the model is still loading, or too many calls wait.
    """
    passages = store.vectors.progress(space.key).passages_done
    found = []
    for question in QUESTIONS:
        vector = embed_query(question, space).vector
        lists = {f"dense_{v}": store.vectors.nearest(space.key, v, vector, 1, EpisodeFilter()) for v in space.variants}
        nearest = {name: passages[0].score for name, passages in lists.items() if passages}
        found.append(Evidence(nearest, unknown_share(question, store.text.unknown)))
    level = level_of(found)
    row = {"passages": passages, "means": level.means, "spreads": level.spreads, "unknown": level.unknown}
    store.settings.set(LEVEL + space.key, row)
    return level


# --- background ------------------------------------------------------------------------------------------

# Unrelated questions that hardly any memory answers. Their best matches give the null-query baseline. Data only.

QUESTIONS = (
    "Which grape is the red wine from Rioja made of?",
    "How do I get candle wax out of a woollen carpet?",
    "Write a limerick about a lighthouse keeper and his goat",
    "What is the boiling point of ethanol at sea level?",
    "Who painted the ceiling of the Sistine Chapel, and how long did it take?",
    "My tomato leaves turn yellow from the bottom up, what is missing?",
    "Plan a birthday party for twelve children with a pirate theme",
    "How many players may a handball team have on the court?",
    "Translate the rental contract for the holiday cottage into Portuguese",
    "Why does bread dough have to rest twice before it is baked?",
    "Compare the pension plans of the two insurance companies",
    "What should I pack for two weeks of sailing in Greece?",
    "The washing machine stops in the middle of the spin cycle",
    "Explain the difference between a sonata and a symphony",
    "Write a letter of complaint to the airline about our lost luggage",
    "How far is the nearest star from the sun?",
    "Which vaccinations does a puppy need in its first year?",
    "Summarise the plot of Hamlet for a school newsletter",
    "How do I change a flat tyre on a motorcycle?",
    "What are the side effects of ibuprofen in older patients?",
    "The Oracle procedure for the monthly interest deadlocks with the ledger import",
    "Our Magento shop shows the wrong shipping price for Norway",
    "Write a MATLAB script that fits a sine wave to the tide gauge readings",
    "The Bluetooth headset disconnects whenever the microwave is on",
    "Sort the hospital's waiting list by urgency and then by age",
    "Convert the COBOL copybook of the policy file into a C# record",
    "How do I make a pivot table of sales by region in Excel?",
    "The Fortran ocean model gives NaN after the third time step",
    "Add a barcode scanner to the warehouse app on Android",
    "Why does my Haskell fold use so much stack on a long list of trades?",
    "Draw the floor plan of the new office in AutoCAD with 14 desks",
    "The printer driver on the reception computer crashes with large envelopes",
    "Write an R script for a survival analysis of the kidney patients",
    "Our LDAP server rejects the new trainees' passwords",
    "Set up a VPN tunnel from the branch in Lisbon to the head office",
    "The PHP contact form of the choir's website sends empty messages",
    "Schedule the trams so that no line waits more than four minutes at the junction",
    "How do I calibrate the pH sensor of the aquarium controller?",
    "Simulate the cooling of a steel beam with finite elements",
    "The Scala job for the ad auction skips records with a missing bid price",
    "Predict tomorrow's electricity demand from temperature and weekday",
    "WordPress shows a white page after the gallery plugin was updated",
    "Write a Verilog module for a traffic light with a pedestrian button",
    "Shrink the video of the wedding so that it fits into an email",
    "Which tax form does a freelance violinist need in Austria?",
    "The voice menu of the dentist's phone line hangs up after the second choice",
    "Generate a crossword puzzle from a list of bird names",
    "How do I export all contacts from Outlook to a new phone?",
)
