"""Which filters ask for something, the same for every backend. Pure."""

from anamnesis_pipeline.model import Where


def is_selective(where: Where) -> bool:
    """Whether the filter asks for more than what a search hides unasked: superseded, kinds, projects, sources."""
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
