"""Of the address of a MongoDB the place is shown, and nothing of a password, however it is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.store.mongo.address import hosts_of, masked

SECRET = "Hunter2hunter"


@pytest.mark.parametrize(
    ("uri", "shown", "hosts"),
    [
        ("mongodb://127.0.0.1:5438/?directConnection=true", "mongodb://127.0.0.1:5438/?directConnection=true",
         "127.0.0.1:5438"),
        ("mongodb://ann:p%40ss@one:27017,two:27017/db?authSource=admin&tls=true",
         "mongodb://ann:***@one:27017,two:27017/db?authSource=admin&tls=true", "one:27017,two:27017"),
        ("mongodb+srv://ann:pa@ss@cluster.example/db", "mongodb+srv://ann:***@cluster.example/db", "cluster.example"),
        ("mongodb://h/?tlsCertificateKeyFilePassword=secret", "mongodb://h/?tlsCertificateKeyFilePassword=***", "h"),
        ("mongodb://[::1]:27017/", "mongodb://[::1]:27017/", "[::1]:27017"),
        ("mongodb://ann@h", "mongodb://ann@h", "h"),
        ("mongodb://ann:pa/ss@h/db", "***", ""),
        ("mongodb://h/?appName=ann@home", "***", ""),
        ("nonsense", "***", ""),
    ],
)  # fmt: skip
def test_what_holds_no_secret_is_shown(uri: str, shown: str, hosts: str) -> None:
    assert masked(uri) == shown
    assert hosts_of(uri) == hosts


@given(st.text("/?#@:%&=,a", max_size=4), st.text("/?#@:%&=,a", max_size=4), st.sampled_from(["", "db", "db?w=1"]))
def test_no_password_is_shown_whatever_signs_it_holds(before: str, after: str, rest: str) -> None:
    uri = f"mongodb://ann:{before}{SECRET}{after}@host:27017/{rest}"
    assert SECRET not in masked(uri) + hosts_of(uri)
