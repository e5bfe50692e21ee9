"""Stored copies of a file: files with the same text in any version, and the one at its path."""

import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from anamnesis_pipeline.errors import DocumentUnreadable
from anamnesis_pipeline.model import FileCursor, content_id
from anamnesis_pipeline.parsing.documents.formats import format_of, to_text
from anamnesis_pipeline.pipeline.archived import ArchivedLines
from anamnesis_pipeline.pipeline.crawl import Mask, folder_of
from anamnesis_pipeline.pipeline.document_archive import masked_lines
from anamnesis_pipeline.pipeline.document_versions import Version
from anamnesis_pipeline.pipeline.documents import holds_documents
from anamnesis_pipeline.services.forget_target import File
from anamnesis_pipeline.services.uploads import upload_id_of
from anamnesis_pipeline.store.base import Store


@dataclass(frozen=True, slots=True)
class StoredCopies:
    """Finds copies in one home.

    :param machine: the name of this machine.
    """

    store: Store
    archive_lines: ArchivedLines
    mask: Mask
    machine: str

    def of(self, file: Path) -> list[File]:
        """Return the stored files that match a file of this machine: uploads of its bytes, files with its text in any
        version, and the one read from its path, even if changed since.

        :raises OSError: it cannot be read.
        """
        data = file.read_bytes()
        upload, lines = upload_id_of(data), list[str]()  # as the archive would hold them; none: it is no document
        if format_of(file.name) is not None:
            with suppress(DocumentUnreadable):
                text = to_text(file.name, data)
                lines = masked_lines(None, self.mask, file.name, Version(0, 0), text, Counter())
        places = {os.path.abspath(file), os.path.realpath(file)}
        return sorted(
            (source.key, path)
            for source in self.store.files.sources()
            for path, cursor in self.store.files.cursors(source.key).items()
            if (source.machine == self.machine and f"{folder_of(source)}/{path}" in places)
            or (holds_documents(source) and (path.startswith(upload) or self._holds(cursor, lines)))
        )

    def _holds(self, cursor: FileCursor, lines: list[str]) -> bool:
        if not lines:
            return False
        if cursor.head_hash == content_id("\n".join(lines)):
            return True
        for generation in range(cursor.generation):
            frames = self.store.archive.frames(cursor.source, cursor.path, generation)
            # the archive of versions with another number of lines is not read
            is_as_long = sum(frame.lines for frame in frames) == len(lines)
            if is_as_long and list(self.archive_lines.read(replace(cursor, generation=generation), 0)) == lines:
                return True
        return False
