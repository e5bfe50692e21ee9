"""Embedding spaces as rows."""

# ruff: noqa: S608
# only names of ours enter the SQL

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from anamnesis_pipeline.errors import SpaceNotFound
from anamnesis_pipeline.model import Space, Variant

SPACE_COLUMNS = """key, model_id, dim, generation, query_prefix, passage_prefix, pooling, "precision", fidelity,
    variants, token_dims, token_variant, status"""


@dataclass(frozen=True, slots=True)
class SpaceRow:
    """What the vectors of a space are found by."""

    space_id: int
    key: str
    dim: int
    status: str
    token_dims: int


def read_row(row: Sequence[Any]) -> Space:
    """A row of `SPACE_COLUMNS`."""
    *fields, variants, token_dims, token_variant, status = row
    return replace(
        Space(*fields), variants=tuple(map(Variant, json.loads(variants))), token_dims=token_dims,
        token_variant=Variant(token_variant), status=status,
    )  # fmt: skip


def find_space(connection: sqlite3.Connection, key: str) -> SpaceRow:
    """The space of this key.

    :raises SpaceNotFound: there is none.
    """
    row = connection.execute(
        "SELECT space_id, key, dim, status, token_dims FROM spaces WHERE key = ?", (key,)
    ).fetchone()
    if row is None:
        known = [name for (name,) in connection.execute("SELECT key FROM spaces ORDER BY space_id")]
        raise SpaceNotFound(
            f"no space {key}, it was never added or was dropped; known are: {', '.join(known) or 'none yet'}"
        )
    return SpaceRow(*row)


def space_with_status(connection: sqlite3.Connection, status: str) -> Space | None:
    """The space of a status that at most one has: `active` or `building`."""
    row = connection.execute(f"SELECT {SPACE_COLUMNS} FROM spaces WHERE status = ?", (status,)).fetchone()
    return None if row is None else read_row(row)
