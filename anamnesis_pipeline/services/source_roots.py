"""Conversion of a list of folders into configured sources, one each. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from anamnesis_pipeline.model import content_id
from anamnesis_pipeline.sources.specs import CLAUDE_ROOT, DOCUMENTS, SourceSpec

_NO_NAME = re.compile(r"[^A-Za-z0-9]+")
_NAME_CHARS = 40


@dataclass(frozen=True, slots=True)
class Root:
    """A folder on the machine `host`; empty: this machine."""

    root: str
    host: str = ""


def specs_with_roots(stored: Sequence[SourceSpec], kind: str, roots: Sequence[Root]) -> list[SourceSpec]:
    """Return the configured sources after those of `kind` are replaced by these folders, without duplicates.

    A source of such a folder stays unchanged; others of the kind are dropped, except Claude Code's own memory on a
    machine, which came with its logs.
    """
    kept = [spec for spec in stored if spec.kind != kind or _is_memory(spec)]
    known = {Root(spec.root, spec.host): spec for spec in stored if spec.kind == kind}
    there = {Root(spec.root, spec.host) for spec in kept if spec.kind == kind}
    wanted = dict.fromkeys(Root(root.root.rstrip("/") or "/", root.host) for root in roots)
    new = [root for root in wanted if root not in there]
    return [*kept, *(known.get(root) or SourceSpec(_name(root), kind, root.root, root.host) for root in new)]


def _is_memory(spec: SourceSpec) -> bool:
    return spec.kind == DOCUMENTS and spec.root == CLAUDE_ROOT


def _name(root: Root) -> str:
    """Return the name of a new source: the folder's name and a unique suffix."""
    words = _NO_NAME.sub("-", root.root.rsplit("/", 1)[-1]).strip("-")[:_NAME_CHARS]
    return f"{words or 'root'}-{content_id(root.host, root.root)[:8]}"
