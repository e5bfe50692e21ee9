"""How much of a memory is retained after a time, and what is no longer needed. Pure.

The trust of sources and the bounds of what is archived are those of engram, and so are the curves but for `huber`
(docs/decisions/0035-importance-and-retention.md). Nothing is deleted by them: they lower a score where a search asks
for it, and propose what to archive.
"""

import math
import re
from datetime import datetime, timedelta
from enum import StrEnum

from anamnesis_pipeline.model import CHAT, RECORD_KIND, RESERVED_SOURCES, Episode, EpisodeHead
from anamnesis_pipeline.search.words import literal_tokens
from anamnesis_pipeline.store.memory_layers import LASTING_TAGS, is_lasting

HALF_LIFE = timedelta(days=30)
"""Half-life of what is fully trusted."""
KAPPA = 2.0
"""How much faster what is less trusted fades: lambda (1 + KAPPA (1 - trust))."""
HUBER_DELTA = 0.5
"""In half-lives: from there on, `huber` falls ever more slowly than `l2`."""
ELASTIC_L1 = 0.3
"""Share of the straight line in `elastic`."""
MAX_REINFORCED, REINFORCED = 0.3, 0.05
"""Most that retrievals add to a retention, and how much the first ones do."""
ARCHIVE_AGE, ARCHIVE_RETENTION, ARCHIVE_VALUE, ARCHIVE_ACCESSES = timedelta(days=90), 0.15, 0.3, 3
"""A memory is archived if it is older, less retained, worth less, and was shown less often."""
PERSON, INSTANCE, SESSION, INGEST, DERIVED = 1.0, 0.7, 0.6, 0.5, 0.4
VALUE_POINTS = 4.0
"""Points of the value of an exchange that count as 1."""
_BY_WORDS = frozenset({"note", "fact"})
_OF_ONE_DAY = re.compile(
    r"\b(?:today|tonight|yesterday|this (?:morning|afternoon|evening)|heute|gestern|hoy|ayer|aujourd'hui|hier)\b"
    r"|^(?:had|was|were|met|phone call|call|lunch|\w+ed)\b",
    re.IGNORECASE,
)
_LEISURE = re.compile(
    r"\b(?:coffee|tea|beer|pizza|cake|snacks?|lunch|dinner|party|birthday|christmas|easter|valentine\S*|halloween|weather"
    r"|cats?|dogs?|kaffee\w*|bier|kuchen|katze|hund|wetter|fußball|geburtstag|weihnachten|ostern"
    r"|café|cerveza|perro|gato|calor|fútbol|cumpleaños|navidad|thé|bière|gâteau|chien|météo|anniversaire|noël)\b",
    re.IGNORECASE,
)
"""What work seldom needs: food, animals, feasts, the weather."""
_FOR_FUN = re.compile(
    r"\b(?:jokes?|lol|haha|oops|yay|funny|cute|ugly|nicer|nicest|too loud|photo of|soundtrack"
    r"|witz|lustig|hässlich|broma|gracios[oa]|blague|drôle|moche)\b",
    re.IGNORECASE,
)
_HAPPENED = re.compile(
    r"\b(?:bet|broke|fell|felt|ate|drank|forgot|slept|left (?:a|an|my|his|her)|took so|survived|finished|spilled|jammed"
    r"|laughed|watched|listened|played|wore|vergessen|verloren|gewonnen|gelaufen|gefallen"
    r"|se (?:cortó|cayó|me \w+)|olvid[éó]|perdi(?:mos|eron|ó)|gan(?:amos|aron|ó)"
    r"|(?:a|ai|ont|avons) (?:planté|perdu|oublié|gagné)|(?:est|suis) tombée?)(?!\w)",
    re.IGNORECASE,
)
"""What befell a person once."""
_HOLDS = re.compile(
    r"\b(?:is|are|has|have|now|since|ist|sind|hat|jetzt|seit|es|son|está|tiene|ahora|desde|est|sont|maintenant|depuis)\b",
    re.IGNORECASE,
)
"""A sentence that says how something is has a word of these."""
_NAMES = re.compile(r"(?<=[\w,;:)'\"] )[A-ZÄÖÜ]\w{2,}|\b[A-Z]{2,}\w*|\b[a-z]+[A-Z]\w*")
_RULES = re.compile(
    r"\b(?:must|always|never|only|needs?|because|otherwise|should|use[sd]?|every|default|until|muss|immer|nie|nur|weil"
    r"|siempre|nunca|solo|porque|toujours|jamais)\b",
    re.IGNORECASE,
)
_DIGIT = re.compile(r"\d")


class Curve(StrEnum):
    """How retention falls with age."""

    L2 = "l2"
    """By half in each half-life."""
    HUBER = "huber"
    """As `l2` at first, then gentler: old memories keep more."""
    ELASTIC = "elastic"
    """Between `l2` and a straight line that ends after two half-lives."""


def trust_of(episode: Episode | EpisodeHead) -> float:
    """Return the trust in where a memory comes from, in [0, 1]: written down by a person, noted by an instance, said in
    a session, read from a file, or derived from others.
    """
    if episode.metadata.get("trust") == "curated":
        return PERSON
    if episode.kind == RECORD_KIND or episode.source == CHAT:
        return DERIVED
    if episode.source == RESERVED_SOURCES[0]:
        return INSTANCE
    return SESSION if episode.session_id else INGEST


def half_life_of(trust: float, half_life: timedelta = HALF_LIFE) -> timedelta:
    """Return the half-life of what is trusted so much.

    :param half_life: of what is fully trusted.
    """
    return half_life / (1 + KAPPA * (1 - trust))


def reinforced(accesses: int) -> float:
    """Return what being shown so often adds to a retention, on a logarithmic scale."""
    return min(MAX_REINFORCED, REINFORCED * math.log1p(accesses))


def retention(
    age: timedelta,
    trust: float = 1.0,
    accesses: int = 0,
    curve: Curve = Curve.HUBER,
    half_life: timedelta = HALF_LIFE,
) -> float:
    """Return the share of a memory that is retained, in [0, 1].

    :param accesses: how often it was shown.
    :param half_life: of what is fully trusted.
    """
    lives = max(0.0, age / max(half_life_of(trust, half_life), timedelta.resolution))
    kept = math.exp2(-lives)
    if curve is Curve.HUBER and lives > HUBER_DELTA:
        kept = math.exp2(-HUBER_DELTA) / (1 + math.log(2) * (lives - HUBER_DELTA))  # the same slope where they meet
    elif curve is Curve.ELASTIC:
        kept = ELASTIC_L1 * max(0.0, 1 - lives / 2) + (1 - ELASTIC_L1) * kept
    return min(1.0, kept + reinforced(accesses))


def value_of(episode: Episode | EpisodeHead) -> float:
    """Return what an episode is worth, in [0, 1]: decisions, lessons and other lasting ones 1, exchanges by their
    value, facts and plain notes by their words.
    """
    value = episode.metadata.get("value")
    if episode.source == RESERVED_SOURCES[0] and episode.kind in _BY_WORDS:
        return worth_of(episode.summary, tagged=bool(episode.tags))
    if is_lasting(episode):
        return 1.0
    return min(1.0, value / VALUE_POINTS) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def worth_of(text: str, *, tagged: bool = False) -> float:
    """Return what a fact or plain note is worth by its words, in [0, 1]: names, identifiers, numbers and rules are what
    may be needed later; what was so on one day is not, nor what happened once, nor a joke, without a tag.
    """
    if _OF_ONE_DAY.search(text):
        return 0.0
    told = (bool(_NAMES.search(text)), bool(literal_tokens(text)), bool(_RULES.search(text)), tagged)
    is_told_of = _HOLDS.search(text) is not None and (told[0] or told[1])
    is_past = _HAPPENED.search(text) is not None and not _HOLDS.search(text)
    is_trivial = _FOR_FUN.search(text) is not None or is_past or (_LEISURE.search(text) and not is_told_of)
    if is_trivial and not (told[2] or tagged):
        return 0.0
    return min(1.0, 0.3 * sum(told) + 0.2 * bool(_DIGIT.search(text)))


def is_archivable(episode: Episode | EpisodeHead, now: datetime) -> bool:
    """Return whether a memory is old, of little value, hardly retained, never much asked for, and not pinned."""
    age = now - episode.timestamp
    return (
        age > ARCHIVE_AGE
        and not LASTING_TAGS & set(episode.tags)
        and episode.retrieval_count < ARCHIVE_ACCESSES
        and value_of(episode) < ARCHIVE_VALUE
        and retention(age, trust_of(episode), episode.retrieval_count) < ARCHIVE_RETENTION
    )
