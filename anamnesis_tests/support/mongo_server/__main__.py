"""`python -m anamnesis_tests.support.mongo_server --port N`: the server as a process of its own.

It prints its URI once it listens. The folder of `--data` keeps what it holds; without it that goes with the process.
"""

import argparse
import signal
import threading

from anamnesis_tests.support.mongo_server.server import LoopbackServer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m anamnesis_tests.support.mongo_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--bind", default="127.0.0.1", help="address to listen at")
    parser.add_argument("--advertise", default="127.0.0.1", help="host that it names to clients")
    parser.add_argument("--user")
    parser.add_argument("--password", default="")
    parser.add_argument("--data", default=":memory:", help="a folder that keeps what it holds")
    given = parser.parse_args()
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    with LoopbackServer(
        port=given.port,
        user=given.user,
        password=given.password,
        bind=given.bind,
        advertised=given.advertise,
        storage=given.data,
    ) as server:
        print(server.uri, flush=True)
        told.wait()


if __name__ == "__main__":
    main()
