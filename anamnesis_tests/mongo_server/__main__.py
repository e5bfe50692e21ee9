"""`python -m anamnesis_tests.mongo_server --port N`: the server as a process of its own, until it is told to stop.

It prints its URI once it listens. Its data is in memory; the file of `--data` keeps it from a clean end to the next
start.
"""

import argparse
import signal
import threading
from pathlib import Path

from anamnesis_tests.mongo_server import data_file
from anamnesis_tests.mongo_server.server import LoopbackServer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m anamnesis_tests.mongo_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="of the first member; the others have the next ones")
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--replica-set", default="loopback", help="its name; empty: one server of its own")
    parser.add_argument("--bind", default="127.0.0.1", help="address to listen at")
    parser.add_argument("--advertise", default="127.0.0.1", help="host that the members name to clients")
    parser.add_argument("--user")
    parser.add_argument("--password", default="")
    parser.add_argument("--data", type=Path, help="a file that keeps what the server holds while it does not run")
    given = parser.parse_args()
    server = LoopbackServer(
        port=given.port,
        members=given.members,
        replica_set=given.replica_set or None,
        user=given.user,
        password=given.password,
        bind=given.bind,
        advertised=given.advertise,
    )
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    if given.data and given.data.exists():
        data_file.load(server, given.data)
    with server:
        print(server.uri, flush=True)
        told.wait()
    if given.data:
        data_file.save(server, given.data)


if __name__ == "__main__":
    main()
