"""What every host must do, on the same tree."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from anamnesis_pipeline.errors import SourceMissing, SourceUnreadable
from anamnesis_pipeline.parsing.text.file_names import name_of
from anamnesis_pipeline.pipeline.crawl import listed, place_of
from anamnesis_pipeline.sources.base import Wanted
from anamnesis_pipeline.sources.document_selection import Rules
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.sources.specs import DOCUMENTS, LOGS, SourceSpec
from anamnesis_pipeline.sources.ssh.machine import SshHost
from anamnesis_pipeline.sources.survey_split import found_in
from anamnesis_tests.sources.conftest import paths, session_name, write
from anamnesis_tests.support.ssh_servers import SSHD

MARKDOWN = ("*.md", "*.TXT")
ODD = [b"two words.md", b"new\nline.md", b"-dash.md", b"quo'te\".md", b"caf\xe9.md", b"\xef\x9f\xa9.md", b"a\\b*?[.md"]


needs_sshd = pytest.mark.skipif(SSHD is None, reason="sshd is not installed")


@pytest.fixture(
    params=[
        "local",
        pytest.param("far_server", marks=needs_sshd),
        pytest.param("bare_server", marks=needs_sshd),
    ]
)
def host(request, user_home, known):
    """This machine; one with `find` and `tar`; one that has SFTP only."""
    if request.param == "local":
        yield LocalHost("box")
        return
    far = request.getfixturevalue(request.param)
    known(far.server)
    found = SshHost("box", far.place)
    yield found
    found.close()


def survey(host, root, kind=DOCUMENTS, names=MARKDOWN, **more):
    (found,) = host.survey([Wanted(kind, os.fspath(root), names=names, **more)])
    if isinstance(found, SourceUnreadable):
        raise found
    return found


def test_documents_are_found_by_name_in_any_case_and_at_any_depth(host, tmp_path):
    for path in ("CLAUDE.md", "a/README.MD", "a/b/c/notes.txt", "a/x.py", "b/.hidden/y.md"):
        write(tmp_path / path)
    assert paths(survey(host, tmp_path)) == ["CLAUDE.md", "a/README.MD", "a/b/c/notes.txt", "b/.hidden/y.md"]
    assert "a/x.py" in paths(survey(host, tmp_path, names=()))


@pytest.mark.parametrize("are_named", [False, True])
def test_folders_to_skip_are_not_entered_and_named_where_asked(host, tmp_path, are_named):
    odd = "new\nline.egg"
    for path in (
        "node_modules/node_modules/a.md",
        f"sub/{odd}/b.md",
        ".git/c.md",
        "sub/.git/d.md",
        "sub/e.md",
        "e.egg",
    ):
        write(tmp_path / path)
    write(tmp_path / "worktree" / ".git", "gitdir: elsewhere\n")
    (tmp_path / "x.egg").symlink_to(tmp_path / "sub")
    found = survey(host, tmp_path, skip=("node_modules", "*.egg"), names_skipped=are_named)
    assert paths(found) == ["sub/e.md"]
    assert found.repositories == (".", "sub", "worktree")
    assert found.skipped == (("node_modules", f"sub/{odd}") if are_named else ())


@pytest.mark.parametrize("is_link", [False, True])
def test_a_root_that_is_a_link_or_named_like_a_folder_to_skip_is_entered(host, tmp_path, is_link):
    root, real = tmp_path / "build", tmp_path / ("real" if is_link else "build")
    write(real / "sub" / "a.md")
    if is_link:
        root.symlink_to(real)
    found = survey(host, root, skip=("build",))
    assert (found.root, paths(found)) == (os.fspath(root), ["sub/a.md"])


def test_patterns_of_what_to_ignore_come_along_but_of_a_huge_file(host, tmp_path):
    write(tmp_path / ".gitignore", "a\n\n b \r\n!c")
    write(tmp_path / "sub" / ".anamnesisignore", "")
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / ".gitignore").write_bytes(b"caf\xe9\n\0\n")
    write(tmp_path / "huge" / ".gitignore", "a\n" * (1 << 18))
    found = survey(host, tmp_path)
    assert found.files == ()
    assert {path: text.rstrip("\n") for path, text in found.ignores.items()} == {
        ".gitignore": "a\n\n b \r\n!c",
        "sub/.anamnesisignore": "",
        "raw/.gitignore": name_of(b"caf\xe9\n\0"),
    }
    assert "not obeyed" in found.problems[0]


@pytest.mark.parametrize("raw", ODD)
def test_odd_names_are_listed_and_read(host, tmp_path, raw):
    folder = os.fsencode(tmp_path) + b"/" + raw + b".d"
    os.mkdir(folder)
    with open(folder + b"/" + raw, "wb") as file:
        file.write(raw)
    found = survey(host, tmp_path)
    assert paths(found) == [f"{name_of(raw)}.d/{name_of(raw)}"]
    path = f"{found.root}/{found.files[0].path}"
    path.encode()
    assert host.read(path, 0, 100) == raw
    with host.fetching([(path, len(raw))]) as read:
        assert read(path, 0, 100) == raw


def test_only_links_to_files_inside_the_root_are_files(host, tmp_path):
    root = tmp_path / "root"
    write(root / "a.md", "12")
    target = write(root / "sub" / "target", "1234567")
    outside = write(tmp_path / "root-2" / "key")
    for link, to in {
        "link.md": target,
        "sub/up.md": "../a.md",
        "folder.md": root / "sub",
        "loop": root,
        "self.md": root / "self.md",
        "nowhere.md": root / "gone",
        "out.md": outside,
        "up.md": "../root-2/key",
        "between": outside.parent,
        "long.md": "between/key",
    }.items():
        (root / link).symlink_to(to)
    os.utime(target, (1_000_000, 1_000_000))
    (tmp_path / "other way").symlink_to(root)
    for way in (root, tmp_path / "other way"):
        found = survey(host, way)
        files = {file.path: file for file in found.files}
        assert set(files) == {"a.md", "link.md", "sub/up.md"}
        assert found.links == {"link.md": "sub/target", "sub/up.md": "a.md"}
        assert (files["link.md"].size, files["link.md"].mtime_ns) == (7, 1_000_000 * 10**9)


def test_special_files_are_not_listed_and_reading_one_does_not_wait(host, tmp_path):
    os.mkfifo(tmp_path / "pipe.md")
    assert survey(host, tmp_path).files == ()
    with pytest.raises(SourceUnreadable):
        host.read(os.fspath(tmp_path / "pipe.md"), 0, 10)


def test_an_unchanged_tree_is_told_from_a_changed_one(host, tmp_path):
    write(tmp_path / "a.md")
    write(tmp_path / ".gitignore", "x")
    first = survey(host, tmp_path)
    again = survey(host, tmp_path, known=first.state)
    assert (again.files, again.state, again.root) == (None, first.state, first.root)
    for change in (
        lambda: write(tmp_path / "a.md", "longer than it was\n"),
        lambda: write(tmp_path / "b.md"),
        lambda: write(tmp_path / ".gitignore", "x\ny"),
        (tmp_path / ".git").mkdir,
        (tmp_path / "a.md").unlink,
    ):
        change()
        changed = survey(host, tmp_path, known=first.state)
        assert changed.files is not None
        assert changed.state != first.state
        first = changed


def test_logs_come_with_the_outputs_of_tools_and_the_history_above(host, tmp_path):
    session = session_name().removesuffix(".jsonl")
    root = tmp_path / "projects"
    logs = sorted(
        [
            f"{session}.jsonl",
            f"{session}.jsonl.orphaned-1",
            f"{session}/subagents/agent-1.jsonl",
            "agent-old.jsonl",
            f"{session}/subagents/agent-1.meta.json",
            f"{session}/subagents/workflows/run/agent-2.jsonl",
            f"{session}/tool-results/agent-2.jsonl",
            f"{session}/tool-results/out.txt",
        ]
    )
    others = ("memory/MEMORY.md", f"{session}/tool-results/out.bin", "journal.jsonl", f"{session}/a.meta.json")
    for path in (*logs, *others, f"{session}/subagents/workflows/run/journal.jsonl"):
        write(root / "-p" / path)
    (root / "-p" / session_name(2)).symlink_to(root / "nowhere")
    write(tmp_path / "history.jsonl", "{}")
    found = survey(host, root, LOGS, ())
    assert (paths(found), found.problems) == ([*(f"-p/{path}" for path in logs), "../history.jsonl"], ())
    assert [file.path for file in host.list_files(f"{root}/-p")] == logs
    assert host.file(os.fspath(tmp_path), "history.jsonl").size == 2
    assert host.file(os.fspath(tmp_path), "nothing.jsonl") is None
    assert host.file(os.fspath(tmp_path), "projects") is None


def test_logs_inside_a_cowork_session_come_with_its_record_above(host, tmp_path):
    session, name = tmp_path / f"local_{session_name().removesuffix('.jsonl')}", session_name()
    log = write(session / ".claude/projects/-sessions-fox" / name)
    record = write(tmp_path / f"{session.name}.json", '{"userSelectedFolders": ["/home/mira/invoices"]}')
    for root in (session / ".claude/projects", session / ".claude/projects/-sessions-fox"):
        found = survey(host, root, LOGS, ())
        assert paths(found) == sorted([f"../{record.name}", os.fspath(log.relative_to(root))])
        spec = SourceSpec("cowork", LOGS, os.fspath(root), machine=host.machine)
        (source,) = found_in(spec, found, Rules(lambda path: None)).sources.values()
        assert [file.path for file in source.files] == [name, record.name]
        assert sorted(listed(host, source.source), key=lambda file: file.path) == list(source.files)
        assert host.read(place_of(source.source, record.name), 0, 99) == record.read_bytes()
    record.write_text("{}")
    assert survey(host, root, LOGS, (), known=found.state).files is not None


def test_folders_of_logs_that_are_linked_are_read_once_and_those_above_named(host, tmp_path):
    name, root = session_name(), tmp_path / "logs" / "projects"
    for path in (root / "sub" / name, tmp_path / "outside" / name, tmp_path / "logs" / "beside" / name):
        write(path)
    (root / "sub" / "back").symlink_to(root)
    (root / "zweitens").symlink_to(root / "sub")
    (root / "linked").symlink_to(tmp_path / "outside")
    found = survey(host, root, LOGS, ())
    assert (paths(found), found.problems) == ([f"linked/{name}", f"sub/{name}"], ())
    (root / "sub" / "up").symlink_to(root.parent)
    (root / "sub" / "all").symlink_to("/")
    found = survey(host, root, LOGS)
    assert paths(found) == [f"linked/{name}", f"sub/{name}"]
    assert sorted(found.problems) == [
        f"{root}/sub/{link}: a link to a folder above the logs, not followed" for link in ("all", "up")
    ]


def test_what_lies_too_deep_is_named(host, tmp_path):
    write(tmp_path.joinpath(*"abcdefghijklmno") / session_name())
    write(tmp_path.joinpath(*"abcdefghijkl") / "deep.md")
    found = survey(host, tmp_path, LOGS, ())
    assert found.files == ()
    assert len(found.problems) == 1
    assert "deeper than 12 folders" in found.problems[0]
    assert len(paths(survey(host, tmp_path))) == 1


@pytest.mark.parametrize("kind", [DOCUMENTS, LOGS])
def test_roots_that_are_missing_or_no_folders_are_errors_in_their_place(host, tmp_path, kind):
    write(tmp_path / "file.md")
    write(tmp_path / session_name())
    missing, no_folder, found = host.survey(
        [Wanted(kind, os.fspath(tmp_path / name)) for name in ("nowhere", "file.md", "")]
    )
    assert isinstance(missing, SourceMissing)
    assert isinstance(no_folder, SourceUnreadable)
    assert not isinstance(no_folder, SourceMissing)
    assert "cannot read the folder" in str(no_folder)
    assert "it is a file, not a directory" in str(no_folder)
    assert session_name() in paths(found)


def test_a_tilde_is_the_home(host, tmp_path):
    folder = Path(tempfile.mkdtemp(dir=host.home()))
    try:
        write(folder / "a.md")
        found = survey(host, f"~/{folder.name}")
        assert (found.root, paths(found)) == (f"{host.home()}/{folder.name}", ["a.md"])
    finally:
        shutil.rmtree(folder)


def test_folders_are_listed_by_name(host, tmp_path):
    for path in (f"-b/{session_name()}", f"a c/{session_name()}", f".hidden/{session_name()}", "file"):
        write(tmp_path / path)
    assert host.folders(os.fspath(tmp_path)) == ["-b", "a c"]
    write(tmp_path / session_name())
    assert host.folders(os.fspath(tmp_path)) == [".", "-b", "a c"]
    with pytest.raises(SourceMissing):
        host.folders(os.fspath(tmp_path / "nowhere"))
    with pytest.raises(SourceUnreadable, match=r"cannot read the folder .*: it is a file, not a directory"):
        host.folders(os.fspath(tmp_path / "file"))


def test_reading_gives_the_asked_range_and_nothing_behind_the_end(host, tmp_path):
    path = os.fspath(write(tmp_path / "file", "0123456789"))
    assert (host.read(path, 3, 4), host.read(path, 8, 10), host.read(path, 10, 1)) == (b"3456", b"89", b"")
    with pytest.raises(SourceMissing, match="cannot read the file"):
        host.read(f"{path}.gone", 0, 1)
    with pytest.raises(SourceUnreadable):
        host.read(os.fspath(tmp_path), 0, 1)


def test_many_files_are_fetched_in_order_and_again_and_others_between(host, tmp_path):
    texts = {os.fspath(write(tmp_path / f"{n:03}.md", f"{n}" * n)): f"{n}" * n for n in range(300)}
    large = os.fspath(write(tmp_path / "large", "x" * 3_000_000))
    other = os.fspath(write(tmp_path / "other", "0123"))
    wanted = [(path, len(text)) for path, text in texts.items()]
    wanted[7:7] = [(large, 3_000_000), (os.fspath(tmp_path / "gone"), 5)]
    with host.fetching(wanted) as read:
        for path, size in wanted:
            if path.endswith("gone"):
                with pytest.raises(SourceMissing):
                    read(path, 0, size)
            elif path == large:
                assert read(path, 0, size) == b"x" * size
                assert read(path, size - 2, 10) == b"xx"
            else:
                assert read(path, 0, size or 1) == texts[path].encode()
                assert read(path, 0, 1) == texts[path][:1].encode()
        assert read(other, 1, 2) == b"12"
        assert read(wanted[1][0], 0, 10) == b"1"


def test_fetching_may_be_left_early(host, tmp_path):
    wanted = [(os.fspath(write(tmp_path / f"{n}", "x" * 10_000)), 10_000) for n in range(50)]
    with host.fetching(wanted) as read, host.fetching([]):
        assert len(read(wanted[0][0], 0, 10_000)) == 10_000


@pytest.mark.parametrize("host", ["local", pytest.param("far_server", marks=needs_sshd)], indirect=True)
def test_files_have_the_size_time_and_identity_that_they_have_over_there(host, tmp_path):
    for name, mtime_ns in (("a.md", 1_700_000_000_123_456_789), ("old.md", -5_000_000_000)):
        write(tmp_path / name, name)
        os.utime(tmp_path / name, ns=(mtime_ns, mtime_ns))
    (tmp_path / "link.md").symlink_to(tmp_path / "a.md")
    found = survey(host, tmp_path)
    assert paths(found) == ["a.md", "link.md", "old.md"]
    for file in found.files:
        status = os.stat(tmp_path / file.path)
        identity = status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino
        assert (file.size, file.mtime_ns, file.device, file.inode) == identity
