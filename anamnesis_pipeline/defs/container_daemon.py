"""Dagster's daemon in a container: `python -m anamnesis_pipeline.defs.container_daemon WORKSPACE`.

As `dagster-daemon run`, but for two things. Before it launches anything, runs whose containers are gone are marked as
failed. And it keeps its connections to PostgreSQL: it asks several questions a second for as long as it lives, and the
storage would make a connection for each, which costs both sides more than the answer.
"""

import logging
import sys

import dagster as dg
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._daemon.controller import daemon_controller_from_instance
from dagster._utils.interrupts import capture_interrupts, setup_interrupt_handlers

from anamnesis_pipeline.defs.recovery import recover

STATEMENT_TIMEOUT_MS = 60_000
CONNECTION_AGE_S = 3_600
MOST_CONNECTIONS = 20
"""Of each of the three storages, while many questions are asked at once; one of each stays open."""


def run(workspace: str) -> None:
    """Until it is told to stop.

    :param workspace: path of the workspace file.
    """
    with dg.DagsterInstance.get() as instance:
        recover(instance)
        # The name is from Dagster's webserver, the other process that lives long and asks often.
        instance.optimize_for_webserver(STATEMENT_TIMEOUT_MS, CONNECTION_AGE_S, MOST_CONNECTIONS)
        with daemon_controller_from_instance(
            instance, WorkspaceFileTarget(paths=[workspace]), code_server_log_level="warning"
        ) as controller:
            controller.check_daemon_loop()


def main() -> None:
    """Exit status 0 after SIGTERM or Ctrl-C."""
    logging.basicConfig(format="%(asctime)s %(message)s")
    setup_interrupt_handlers()
    try:
        with capture_interrupts():
            run(sys.argv[1])
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
