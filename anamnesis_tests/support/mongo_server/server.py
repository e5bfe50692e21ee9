"""A MongoDB for tests: a SecantusDB server in this process, and before it a relay whose search service answers what
only MongoDB's own search process can.

with LoopbackServer() as server:
    client = MongoClient(server.uri)
"""

from types import TracebackType
from typing import Any, Self

from pymongo import MongoClient
from secantus import SecantusDBServer

from anamnesis_tests.support.mongo_server.faults import Faults
from anamnesis_tests.support.mongo_server.relay import Relay
from anamnesis_tests.support.mongo_server.search_analysis import porter_stemmer
from anamnesis_tests.support.mongo_server.search_service import SearchService

ELECTION_S = 1
"""A server that stepped down is the primary again after it: it is the only member."""


class _Engine(SecantusDBServer):
    """It names the relay to its clients, which would go around it otherwise."""

    named: tuple[str, int] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where clients find it."""
        return self.named or super().address


class LoopbackServer:
    """A replica set of one member on this machine.

    :param port: 0: any that is free.
    :param user: who may do anything, with `password`; None: everybody may.
    :param advertised: the host that it names to clients, where they must reach it.
    :param storage: the folder of its data; `:memory:`: one that goes with it.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        user: str | None = None,
        password: str = "",
        bind: str = "127.0.0.1",
        advertised: str = "127.0.0.1",
        storage: str = ":memory:",
    ) -> None:
        self._engine = _Engine(storage_path=storage, replica_set_name="loopback", cache_size="256M")
        self._account = user, password
        self._bind, self._port, self._advertised = bind, port, advertised
        self.faults = Faults()

    @property
    def uri(self) -> str:
        """For clients, without user and password."""
        return f"mongodb://{self._advertised}:{self._relay.port}/?replicaSet=loopback"

    def start(self) -> Self:
        """Listen."""
        porter_stemmer()
        self._engine.start()
        user, password = self._account
        place = f"mongodb://{self._engine.host}:{self._engine.port}/?directConnection=true"
        if user is not None:
            with MongoClient[dict[str, Any]](place) as client:
                if not client["admin"].command("usersInfo", user)["users"]:
                    client["admin"].command("createUser", user, pwd=password, roles=["root"])
            self._engine.require_auth = True
        self._client: MongoClient[dict[str, Any]] = MongoClient(
            place, username=user, password=password if user else None
        )
        self._search = SearchService(self._client)
        self.catalog = self._search.catalog
        server = self._engine.host, self._engine.port
        self._relay = Relay(self._bind, self._port, server, self.faults, self._search)
        self.come_back()
        self._engine.named = self._advertised, self._relay.port
        return self

    def stop(self) -> None:
        """Close everything."""
        self.faults.clear()
        self._relay.close()
        self._client.close()
        self._engine.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def step_down(self) -> None:
        """An election: open transactions are lost."""
        self._client.admin.command("replSetStepDown", ELECTION_S, force=True)
        self._client.admin.command("killAllSessions", [])

    def vanish(self) -> None:
        """It stops listening, and every connection breaks; the data stays."""
        self._relay.close()
        self._client.admin.command("killAllSessions", [])

    def come_back(self) -> None:
        """It listens again, at its port."""
        self._relay.open()

    def reset(self, *kept: str) -> None:
        """As it was when it started, but for databases that stay."""
        self.faults.clear()
        self.catalog.behaviour.reset()
        self.come_back()
        self.drop(*(set(self.databases()) - {*kept}))

    def databases(self) -> list[str]:
        """Those that tests made."""
        return [name for name in self._client.list_database_names() if name not in ("admin", "config", "local")]

    def drop(self, *databases: str) -> None:
        """Remove databases, with their search indexes."""
        for name in databases:
            self._client.drop_database(name)
            self.catalog.forget(name)
