"""Let the site hold what its pages link to outside docs/: Markdown files as pages, other files as listings.

On the hosting service such links lead to the file in the repository; the site has no address of one.
"""

import re
from pathlib import Path
from posixpath import normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")
FOLDER = "repository"
"""Folder of the site that holds them, below the same names as in the repository."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the linked files to the site, and those that they link to in turn. `source` is a path in the repository."""
    pending = [(file, f"docs/{file.src_uri}") for file in files.documentation_pages()]
    while pending:
        page, source = pending.pop()
        text, links = page.content_string, dict[str, str]()
        for link in set(LINK.findall(text)):
            target = linked(source, link)
            if target is None:
                continue
            uri = site_uri(target)
            if files.get_file_from_path(uri) is None:
                added = File.generated(config, uri, content=content_of(target), inclusion=InclusionLevel.NOT_IN_NAV)
                files.append(added)
                pending.append((added, target))
            links[link] = relpath(uri, str(Path(page.src_uri).parent))
        if links:
            for link in sorted(links, key=len, reverse=True):
                text = text.replace(f"]({link}", f"]({links[link]}")
            page.content_string = text
    return files


def linked(source: str, link: str) -> str | None:
    """The path in the repository of what a file links to; None where the link is right as it is, or leads nowhere."""
    target = normpath(f"{Path(source).parent.as_posix()}/{link}")
    if (ROOT / target).is_dir():
        target += "/README.md"
    if not (ROOT / target).is_file() or (source.startswith("docs/") and target.startswith("docs/")):
        return None
    return target


def site_uri(target: str) -> str:
    """Where the site has a file of the repository."""
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return f"{FOLDER}/{target}" if target.endswith(".md") else f"{FOLDER}/{target}.md"


def content_of(target: str) -> str:
    """The file as Markdown."""
    text = (ROOT / target).read_text(encoding="utf-8")
    if target.endswith(".md"):
        return text
    return f"# {target}\n\n````{Path(target).suffix.removeprefix('.')}\n{text.rstrip()}\n````\n"
