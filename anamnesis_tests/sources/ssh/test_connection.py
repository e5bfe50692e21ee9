"""The user's SSH configuration, put together from its files."""

from pathlib import Path

import pytest

from anamnesis_pipeline.errors import HostRefused
from anamnesis_pipeline.sources.ssh.connection import user_config


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh/parts").mkdir(parents=True)
    return tmp_path / ".ssh"


def test_what_an_included_file_says_counts_in_its_place(ssh: Path) -> None:
    (ssh / "config").write_text("Include parts/*.conf ~/more absent\nUser ann\nHost nas\n  Port 22\n")
    (ssh / "parts/a.conf").write_text("Host nas\n  Port 2222\n")
    (ssh / "parts/b.conf").write_text("include=parts/deeper\n")
    (ssh / "parts/deeper").write_text("Host box\n  HostName 10.0.0.7\n")
    (ssh.parent / "more").write_text("Host shed\n  User bob\n")
    config = user_config()
    assert (config.lookup("nas")["port"], config.lookup("nas")["user"]) == ("2222", "ann")
    assert config.lookup("box")["hostname"] == "10.0.0.7"
    assert (config.lookup("shed")["user"], config.lookup("other")["user"]) == ("bob", "ann")


def test_configuration_that_includes_itself_is_refused(ssh: Path) -> None:
    assert dict(user_config().lookup("nas")) == {"hostname": "nas"}
    (ssh / "config").write_text("Include config\n")
    with pytest.raises(HostRefused, match="include"):
        user_config()
