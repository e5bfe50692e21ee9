"""Topics, pinned preferences and pointers as they are stored."""

from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.samples import put

SHOP = "acme/shop"


def put_topic(
    store: Store, path: str, *sections: str, project: str = SHOP, minute: float = 0, **fields: object
) -> None:
    """Store a crawled topic, one episode per section; titles and lines are those of its Markdown."""
    line = 1
    for number, text in enumerate(sections):
        put(
            store,
            f"{path}#{number}",
            text,
            minute=minute + number,
            project=project,
            path=path,
            machine=str(fields.get("machine", "box")),
            kind="document",
            source=str(fields.get("source", "box--memory")),
            raw_exchange=text,
            summary=text[:50],
            tags=("document", "markdown", "curated", "topic"),
            metadata={
                "title": [path.rsplit("/", 1)[-1], str(fields.get("title", "Deploys"))],
                "lines": [line, line + text.count("\n")],
                "trust": "curated",
            },
        )
        line += text.count("\n") + 2


def put_pinned(store: Store, episode_id: str, text: str, project: str = SHOP, minute: float = 0) -> None:
    """Store a pinned preference."""
    put(store, episode_id, text, minute=minute, project=project, kind="preference", tags=("pinned",), summary=text)


def put_pointer(store: Store, keyword: str, project: str = SHOP, **facts: str) -> None:
    """Store a pointer."""
    metadata = {
        "keyword": keyword,
        "description": facts.get("description", ""),
        "category": facts.get("category", "infrastructure"),
        "machine": facts.get("machine", "nas"),
        "path": facts.get("path", "/srv/backups"),
        "extra": {},
    }
    put(store, f"pointer-{project}-{keyword}", keyword, project=project, kind="pointer", metadata=metadata)
