"""Uploaded documents: identified by content, stored like any other, listed and forgotten."""

import mimetypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, Protocol

from anamnesis_pipeline.errors import DocumentUnreadable, DocumentUnsupported, TooLarge
from anamnesis_pipeline.parsing.documents.formats import format_of, to_text
from anamnesis_pipeline.parsing.documents.sections import says_too_little
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.pipeline.exclusion import Exclusions, kept_away_by, refuse
from anamnesis_pipeline.services.forget import Forgetter
from anamnesis_pipeline.services.forget_target import ForgetRequest
from anamnesis_pipeline.services.forgotten_uploads import SOURCE, UPLOADS, bring_back, drop_empty_upload
from anamnesis_pipeline.sources.exclusion import sha256_of
from anamnesis_pipeline.store.base import Store

MAX_BYTES = 50 * 1024 * 1024
_ID_CHARS = 32
_SUFFIXES = {"text/markdown": ".md", "text/x-markdown": ".md", "text/plain": ".txt", "application/json": ".json"}
_MAGIC = ((b"%PDF-", ".pdf"), (b"{\\rtf", ".rtf"))


@dataclass(frozen=True, slots=True)
class Handed:
    """A document to upload. `media_type` counts if the name has no type. `url`: its origin. `default_instance`: owner
    of a new document if `instance` is empty. `path`: its absolute path on `machine`, for path rules; not stored.
    """

    filename: str
    data: bytes
    media_type: str = ""
    project: str = ""
    tags: tuple[str, ...] = ()
    title: str = ""
    when: datetime | None = None
    url: str = ""
    instance: str = ""
    default_instance: str = ""
    path: str = ""
    machine: str = ""


@dataclass(frozen=True, slots=True)
class Upload:
    """Stored facts of an upload beside its text. `upload_id` is made of its content."""

    upload_id: str
    filename: str
    bytes: int
    project: str
    tags: tuple[str, ...]
    title: str
    url: str
    uploaded_at: datetime
    episode_ids: tuple[str, ...]
    duplicate: bool = False
    """Whether the same bytes were stored before, so that only the metadata changed."""
    instance: str = ""
    note: str = ""
    """Why search cannot find it, or not all of it."""


class AddDocument(Protocol):
    """Stores one document, as `Pipeline.add_document` does."""

    def __call__(
        self,
        source_key: str,
        path: str,
        data: bytes,
        *,
        project: str,
        instance: str,
        tags: Sequence[str],
        title: str,
        when: datetime | None,
    ) -> list[str]:
        """Store one document; return the ids of its episodes."""


class EditEpisode(Protocol):
    """Edits an episode, as `EpisodeWriter.patch` does."""

    def __call__(self, episode_id: str, changes: Mapping[str, Any]) -> object:
        """Edit fields of an episode."""


class Uploads:
    """The uploads of one home."""

    def __init__(
        self,
        store: Store,
        add: AddDocument,
        masked: Callable[[str], str],
        edit: EditEpisode,
        embed: Callable[[Sequence[str]], None] = lambda ids: None,
    ) -> None:
        """:param embed: embeds episodes now, if the model is available; else the pipeline does it later."""
        self._store, self._add, self._masked, self._edit, self._embed = store, add, masked, edit, embed
        self._exclusions = Exclusions(store)

    def take(self, handed: Handed) -> Upload:
        """Store a document; the next keyword search finds it. For bytes stored before, only update the project,
        instance, tags and title.

        :raises TooLarge: more than 50 MiB.
        :raises DocumentUnsupported: name, type and content match no supported format.
        :raises DocumentUnreadable: it is damaged, encrypted or empty.
        :raises Excluded: a rule excludes it.
        """
        if len(handed.data) > MAX_BYTES:
            raise TooLarge(f"the document has more than {MAX_BYTES >> 20} MiB; send it in pieces")
        upload_id = upload_id_of(handed.data)
        known = self.get(upload_id)
        name = known.filename if known else self._masked(named(handed))
        if (rules := self._exclusions).stamp:
            project = handed.project or (known.project if known else "")
            refuse(rules.of_bytes(handed.data) or rules.of_project(project))
            refuse(rules.of_path(handed.machine, handed.path) if handed.path else None)
            refuse(rules.of_path("", f"/{name}") or rules.of_content(to_text(name, handed.data)))
        if known is not None:
            return self._said_anew(known, handed)
        times = bring_back(self._store, upload_id)  # a new folder: the archived lines of a forgotten one are empty
        folder = f"{upload_id}-{times}" if times else upload_id
        fields = replace(
            handed,
            project=self._masked(handed.project),
            title=self._masked(handed.title),
            tags=tuple(dict.fromkeys(map(self._masked, handed.tags))),
            url=self._masked(handed.url),
            instance=self._masked(handed.instance or handed.default_instance),
        )
        try:
            ids = self._add(
                SOURCE,
                f"{folder}/{name}",
                handed.data,
                project=fields.project,
                instance=fields.instance,
                tags=fields.tags,
                title=fields.title,
                when=handed.when,
            )
        except DocumentUnreadable as problem:  # the client knows it by its name
            raise DocumentUnreadable(str(problem).removeprefix(f"{folder}/")) from problem
        upload = Upload(
            upload_id,
            name,
            len(handed.data),
            fields.project,
            fields.tags,
            fields.title,
            fields.url,
            datetime.now(UTC),
            tuple(ids),
            instance=fields.instance,
            note=self._note(folder, name, handed.data, ids),
        )
        self._store.settings.set(UPLOADS + upload_id, _body(upload))
        self._embed(ids)
        return upload

    def _note(self, folder: str, name: str, data: bytes, ids: Sequence[str]) -> str:
        """Return why search cannot find an upload, or not all of it; empty: it can."""
        if ids:
            held = set(ids) - self._store.episodes.get(ids).keys()
            return f"{counted(len(held), 'section')} kept away; {kept_away_by(self._store, held)}" if held else ""
        cursor = self._store.files.cursor(SOURCE, f"{folder}/{name}")
        if cursor is not None and cursor.unread:
            return cursor.unread.removeprefix(f"{folder}/").removeprefix(f"{name}: ")
        text = to_text(name, data)
        if too_little := says_too_little(text):
            return f"nothing of it is remembered: {too_little}"
        return "all of it was deleted or forgotten before, and stays away: anamnesis exclude list"

    def _said_anew(self, known: Upload, handed: Handed) -> Upload:
        """Return a stored upload after updating its metadata."""
        named = {"project": self._masked(handed.project), "instance": self._masked(handed.instance)}
        changes = {name: value for name, value in named.items() if value and value != getattr(known, name)}
        more = tuple(tag for tag in dict.fromkeys(map(self._masked, handed.tags)) if tag not in known.tags)
        title = self._masked(handed.title)
        is_titled = bool(title) and title != known.title
        if not changes and not more and not is_titled:
            return replace(known, duplicate=True)
        episodes = self._store.episodes.get(known.episode_ids)
        for episode in episodes.values():
            edits: dict[str, Any] = dict(changes)
            if more:
                edits["tags"] = tuple(dict.fromkeys((*episode.tags, *more)))
            if is_titled:
                former = episode.metadata.get("title")
                edits["metadata"] = {
                    **episode.metadata,
                    "title": [title, *(former[1:] if isinstance(former, list) else ())],
                }
            self._edit(episode.episode_id, edits)
        upload = replace(
            known,
            project=named["project"] or known.project,
            instance=named["instance"] or known.instance,
            tags=(*known.tags, *more),
            title=title or known.title,
        )
        self._store.settings.set(UPLOADS + known.upload_id, _body(upload))
        self._embed(list(episodes))
        return replace(upload, duplicate=True)

    def get(self, upload_id: str) -> Upload | None:
        """Return one upload; None when there is none, or it was forgotten."""
        body = self._store.settings.get(UPLOADS + upload_id)
        return _read(body) if body else None

    def listed(self) -> list[Upload]:
        """Return all uploads, the newest first."""
        found = map(_read, self._store.settings.all(UPLOADS).values())
        return sorted(found, key=lambda upload: (upload.uploaded_at, upload.upload_id), reverse=True)

    def forget(self, upload_id: str, forgetter: Forgetter) -> bool:
        """Forget an upload for good, with everything made of it; return False when there is none. Text that another
        document also has stays there. A new upload brings it back.
        """
        upload = self.get(upload_id)
        if upload is None:
            return False
        if upload.episode_ids:
            forgetter.forget(ForgetRequest(ids=upload.episode_ids, keeps_copies=True))
        else:
            drop_empty_upload(self._store, upload_id)
            forgetter.remove_leftovers()
        return True


def upload_id_of(data: bytes) -> str:
    """Return the upload id of these bytes."""
    return sha256_of(data)[:_ID_CHARS]


def named(handed: Handed) -> str:
    """Return the file name used for parsing, with a suffix added if it has none.

    :raises DocumentUnsupported: no supported format.
    """
    name = PurePosixPath(handed.filename.replace("\\", "/")).name or "upload"
    name = "".join(char for char in name if char.isprintable())[-200:] or "upload"
    if format_of(name) is None and "." not in name:
        media_type = handed.media_type.partition(";")[0].strip().lower()
        suffix = _SUFFIXES.get(media_type) or mimetypes.guess_extension(media_type) or ""
        if not suffix or not format_of(f"x{suffix}"):
            other = "" if b"\0" in handed.data else ".txt"
            suffix = next((each for magic, each in _MAGIC if handed.data.startswith(magic)), other)
        name += suffix
    if format_of(name) is None:
        raise DocumentUnsupported(f"{name!r} is of no type that is read; Markdown, text, code and office files are")
    return name


def _body(upload: Upload) -> dict[str, Any]:
    return asdict(upload) | {"uploaded_at": upload.uploaded_at.isoformat()}


def _read(body: dict[str, Any]) -> Upload:
    return Upload(
        **body
        | {
            "uploaded_at": datetime.fromisoformat(body["uploaded_at"]),
            "tags": tuple(body["tags"]),
            "episode_ids": tuple(body["episode_ids"]),
        }
    )
