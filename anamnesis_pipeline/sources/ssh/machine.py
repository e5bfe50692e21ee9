"""Files of another machine over SSH: read-only, on one connection, a tree in one round trip with GNU find."""

import math
import secrets
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from anamnesis_pipeline.errors import HostUnreachable, NoSftp, SourceMissing, SourceUnreadable
from anamnesis_pipeline.model import FileStat
from anamnesis_pipeline.parsing.text.file_names import name_of
from anamnesis_pipeline.sources.base import (
    COMMAND_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    READ_TIMEOUT_S,
    Listing,
    Read,
    Survey,
    Wanted,
    files_above,
    is_log,
)
from anamnesis_pipeline.sources.local import MAX_DEPTH
from anamnesis_pipeline.sources.specs import DOCUMENTS
from anamnesis_pipeline.sources.ssh.answers import listing_of, survey_of, unread_patterns, unreadable
from anamnesis_pipeline.sources.ssh.link import IDLE_S, SshLink
from anamnesis_pipeline.sources.ssh.questions import (
    Answer,
    Question,
    Reply,
    complaints,
    documents_question,
    file_question,
    folders_question,
    logs_question,
    read_reply,
    script_of,
)
from anamnesis_pipeline.sources.ssh.sftp import Attributes, SshReaders
from anamnesis_pipeline.sources.ssh.sftp_walk import file_there, folders_there, look_through
from anamnesis_pipeline.sources.ssh.shell import ShellFiles, SshShell
from anamnesis_pipeline.sources.ssh.stream import Fetching

KEPT = 4
"""Number of measurements that are compared."""
LONG_S = 0.25
"""A longer round trip, in seconds, is imprecise: the machine is asked again until `KEPT` measurements exist."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The clock's lead half way through the round trip, in seconds; the error is at most half of the round trip."""

    ahead_s: float
    round_trip_s: float


def noted(known: Sequence[Measured], new: Measured) -> tuple[Measured, ...]:
    """Return the last measurements with a new one. Drop those that it contradicts: the clock was set."""
    fit = [one for one in known if abs(one.ahead_s - new.ahead_s) <= one.round_trip_s + new.round_trip_s]
    return (*fit, new)[-KEPT:]


def skew_s(known: Sequence[Measured]) -> float | None:
    """Return the lead with the shortest round trip, 0 if it is within that round trip; None: not measured."""
    best = min(known, key=lambda one: one.round_trip_s, default=None)
    if best is None:
        return None
    return best.ahead_s if abs(best.ahead_s) > best.round_trip_s else 0.0


def is_vague(known: Sequence[Measured]) -> bool:
    """Return whether to measure again at the next poll."""
    return len(known) < KEPT and min((one.round_trip_s for one in known), default=0.0) > LONG_S


TEXT_BYTES = 1 << 20
"""A longer file does not describe a repository."""
CLOCK_S = 900.0
"""Seconds for which the clock difference is cached: asking costs the host a process."""


class SshHost:
    """A host that this user's `ssh` reaches. Nothing is ever written there."""

    def __init__(
        self,
        machine: str,
        place: str,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        command_timeout_s: float = COMMAND_TIMEOUT_S,
        read_timeout_s: float = READ_TIMEOUT_S,
        idle_s: float = IDLE_S,
    ) -> None:
        """:param machine: its name in results.
        :param place: as `ssh` takes it: a host, `user@host`, `user@host:port` or a name in `~/.ssh/config`.
        :param connect_timeout_s: for each of: connection, greeting, login, a new channel.
        :param command_timeout_s: for a survey.
        :param read_timeout_s: for each piece of a file.
        :param idle_s: an unused connection is closed after this time.
        """
        self._machine = machine
        self._command_timeout_s = command_timeout_s
        self._link = SshLink(place, connect_timeout_s=connect_timeout_s, read_timeout_s=read_timeout_s, idle_s=idle_s)
        self._readers = SshReaders(self._link)
        self._shell = SshShell(self._link)
        self._by_shell = ShellFiles(self._link, command_timeout_s)
        self._has_no_sftp = False
        self._home: str | None = None
        self._clock: tuple[Measured, ...] = ()
        self._clock_due = -math.inf
        self._lock = threading.Lock()

    @property
    def machine(self) -> str:
        """Return the machine's name in results."""
        return self._machine

    @property
    def place(self) -> str:
        """Return the host as `ssh` takes it."""
        return self._link.place

    def close(self) -> None:
        """Close the connection. The next call connects again."""
        self._link.close()
        self._has_no_sftp = False

    def clock_skew_s(self) -> float | None:
        """Return the seconds that the host's clock is ahead, as last measured: every `CLOCK_S`, and sooner if the
        answers took long.
        """
        return skew_s(self._clock)

    def home(self) -> str:
        """Return the absolute path of `~` on the host."""
        if self._home is None:
            reply = self._asked(())
            if reply is None:
                with self._readers.sftp() as sftp:
                    self._home = sftp.real_path(".")
        return self._home or "/"

    def folders(self, root: str) -> list[str]:
        """Return the names of the folders directly under `root`, sorted; `.` first if `root` itself holds logs.

        :raises SourceUnreadable: `root` is missing or cannot be listed.
        """
        answer = self._answer(folders_question(root))
        if answer is None:
            with self._readers.sftp() as sftp:
                answer = folders_there(sftp, root)
        if answer.error:
            raise unreadable("folder", answer)
        entries = answer.entries or []
        here = ["."] if any(is_log(entry.stat.path) for entry in entries) else []
        found = (entry.stat.path for entry in entries if entry.kind == "d")
        return here + sorted(name for name in found if not name.startswith("."))

    def list_files(self, root: str) -> Listing:
        """List every log, subagent description and tool output at or below `root`. Folders that cannot be listed are
        skipped and reported.

        :raises SourceUnreadable: `root` itself is missing or cannot be listed.
        """
        answer = self._answer(logs_question(root, "", MAX_DEPTH))
        if answer is None:
            with self._readers.sftp() as sftp:
                answer = look_through(sftp, Wanted("", root), "")
        if answer.error:
            raise unreadable("folder", answer)
        return listing_of(answer)

    def file(self, root: str, name: str) -> FileStat | None:
        """Return the file `name` directly in `root`; None if it is missing or cannot be seen."""
        path = f"{root.rstrip('/')}/{name}"
        answer = self._answer(file_question(path))
        if answer is None:
            with self._readers.sftp() as sftp:
                return file_there(sftp, path, name)
        found = [entry.stat for entry in answer.entries or ()]
        return FileStat(name, found[0].size, found[0].mtime_ns, found[0].device, found[0].inode) if found else None

    def survey(self, wanted: Sequence[Wanted]) -> list[Survey | SourceUnreadable]:
        """Survey each, in order, in one round trip if the host has GNU find. A root that cannot be listed gives an
        error in its place.
        """
        proper = [each for each in wanted if each.root.startswith(("/", "~/")) or each.root == "~"]
        reply = self._asked(
            [
                documents_question(each)
                if each.kind == DOCUMENTS
                else logs_question(each.root, each.known, MAX_DEPTH, files_above(each.root))
                for each in proper
            ]
        )
        answers = list(reply.answers or ()) if reply else []
        if proper and not answers:
            with self._readers.sftp() as sftp:
                answers = [look_through(sftp, each, self._home or "") for each in proper]
        for answer in answers:
            for file in unread_patterns(answer):  # the survey lacks their text, e.g. because of a different `grep`
                try:
                    text = self.read(f"{answer.root.rstrip('/')}/{file.path}", 0, file.size)
                    answer.ignores[file.path] = name_of(text)
                except SourceUnreadable as problem:
                    answer.problems.append(str(problem))
        if len(answers) != len(proper):
            raise HostUnreachable(f"{self.place} broke off in the middle of its answer; try again later")
        found = {each: survey_of(each, answer) for each, answer in zip(proper, answers, strict=True)}
        return [
            found[each]
            if each in found
            else SourceUnreadable(f"cannot read the folder {each.root}: it must begin with / or ~/ on another machine")
            for each in wanted
        ]

    def fetching(self, files: Sequence[tuple[str, int]]) -> AbstractContextManager[Read]:
        """Return a reader for files that will be read whole and in this order: (absolute path, size) each. Small files
        arrive ahead of their reader in one stream.
        """
        self._readers.renew()
        return Fetching(self._link, self.read, files)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return at most `length` bytes of a file; empty at its end.

        :raises SourceUnreadable: the file is missing, not a regular file, or cannot be read.
        """
        if not self._has_no_sftp:
            try:
                return self._readers.read(path, offset, length)
            except NoSftp:
                self._has_no_sftp = True
        return self._by_shell.read(path, offset, length)

    def stat(self, path: str) -> Attributes:
        """Return the attributes of a file or folder, or of a link's target, without a file's size where SFTP is absent.

        :raises SourceMissing: nothing is there.
        :raises SourceUnreadable: it cannot be seen.
        """
        if not self._has_no_sftp:
            try:
                with self._readers.sftp() as sftp:
                    return sftp.stat(path)
            except NoSftp:
                self._has_no_sftp = True
        return self._by_shell.stat(path)

    def real_path(self, path: str) -> str:
        """Return the path without links and dots, even if nothing is there.

        :raises SourceUnreadable: the host does not answer.
        """
        if not self._has_no_sftp:
            try:
                with self._readers.sftp() as sftp:
                    return sftp.real_path(path)
            except NoSftp:
                self._has_no_sftp = True
        return self._by_shell.real_path(path)

    def disk(self) -> "SshDisk":
        """Return its disk, to find the repository of a folder there (`projects.resolved_project`)."""
        return SshDisk(self)

    def _answer(self, question: Question) -> Answer | None:
        """Return the answer; None: the host has no GNU find."""
        reply = self._asked([question])
        return reply.answers[0] if reply and reply.answers else None

    def _asked(self, questions: Sequence[Question]) -> Reply | None:
        """Return the answer to one script; None: the host runs no shell."""
        self._readers.renew()
        token = secrets.token_hex(8)
        script = script_of(questions, token, with_clock=time.monotonic() >= self._clock_due)
        ran = self._shell.run(script, token, self._command_timeout_s)
        reply = read_reply(ran.stdout, token)
        if reply is None:
            return None
        with self._lock:
            self._home = reply.home or self._home
            if reply.clock_s is not None:
                self._clock = noted(self._clock, Measured(reply.clock_s - ran.at_s, ran.round_trip_s))
                self._clock_due = time.monotonic() + (0.0 if is_vague(self._clock) else CLOCK_S)
        for complaint in complaints(ran.stderr):  # of its root, or of all roots if it names none
            of = [answer for answer in reply.answers or () if complaint.startswith(answer.root)]
            longest = max((len(answer.root) for answer in of), default=0)
            for answer in [answer for answer in of if len(answer.root) == longest] or reply.answers or ():
                answer.problems.append(complaint)
        return reply


class SshDisk:
    """The disk of a host, within its permissions, as far as finding the repository of a folder needs it.

    Every method may also raise `HostUnreachable` and `HostRefused`.
    """

    def __init__(self, host: SshHost) -> None:
        self._host = host

    def mode(self, path: str) -> int | None:
        """Return the `st_mode` of a path, following links; None: nothing is there.

        :raises OSError: it cannot be seen.
        """
        try:
            return self._host.stat(path).mode
        except SourceMissing:
            return None
        except SourceUnreadable as problem:
            raise OSError(str(problem)) from problem

    def text(self, path: str) -> str:
        """Return a small file's text, invalid UTF-8 replaced; a larger file is truncated.

        :raises OSError: it cannot be read.
        """
        try:
            return self._host.read(path, 0, TEXT_BYTES).decode("utf-8", "replace")
        except SourceUnreadable as problem:
            raise OSError(str(problem)) from problem

    def real_path(self, path: str) -> str:
        """Return the path without links and dots, even if nothing is there.

        :raises OSError: the host does not answer.
        """
        try:
            return self._host.real_path(path)
        except SourceUnreadable as problem:
            raise OSError(str(problem)) from problem

    def home(self) -> str:
        """Return the home of the login user."""
        return self._host.home()
