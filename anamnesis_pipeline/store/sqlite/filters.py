"""`Where` as SQL over `episodes e`. The only place that knows both."""

from anamnesis_pipeline.model import Where
from anamnesis_pipeline.store.sqlite.columns import instant, json_list
from anamnesis_pipeline.store.sqlite.layer_terms import layer_terms

Condition = tuple[str, list[str]]
"""SQL that stands after WHERE, and its parameters in order."""


def condition(where: Where) -> Condition:
    """What an episode must meet, as one expression; `1` when nothing is asked."""
    terms: list[tuple[str, str]] = []
    if where.projects:
        terms.append(("e.project IN (SELECT value FROM json_each(?))", json_list(where.projects)))
    if where.instance is not None:
        terms.append(("e.instance = ?", where.instance))
    if where.kinds:
        terms.append(("e.kind IN (SELECT value FROM json_each(?))", json_list(where.kinds)))
    if where.hidden_kinds:
        terms.append(("e.kind NOT IN (SELECT value FROM json_each(?))", json_list(where.hidden_kinds)))
    terms += [("e.episode_key IN (SELECT episode_key FROM episode_tags WHERE tag = ?)", tag) for tag in where.tags]
    if where.source is not None:
        terms.append(("e.source = ?", where.source))
    if where.session_id is not None:
        of_session = "e.episode_key IN (SELECT episode_key FROM episode_texts WHERE session_id = ?)"
        terms.append((of_session, where.session_id))
    if where.since is not None:
        terms.append(("e.timestamp >= ?", instant(where.since)))
    if where.until is not None:
        terms.append(("e.timestamp < ?", instant(where.until)))
    terms += layer_terms(where)
    pieces = [sql for sql, _ in terms]
    if not where.include_superseded:
        pieces.append("e.status = 'active'")
    return " AND ".join(pieces) or "1", [value for _, value in terms]


def is_selective(where: Where) -> bool:
    """Whether the filter asks for more than what every search hides (superseded episodes and hidden kinds)."""
    return bool(
        where.projects
        or where.kinds
        or where.tags
        or where.instance is not None
        or where.source is not None
        or where.session_id is not None
        or where.since is not None
        or where.until is not None
        or where.layers
    )
