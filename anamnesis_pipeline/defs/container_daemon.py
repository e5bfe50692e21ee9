"""Dagster's daemon in a container: `python -m anamnesis_pipeline.defs.container_daemon WORKSPACE`.

As `dagster-daemon run`, but for three things. Before it launches anything, runs whose containers are gone are marked as
failed. It keeps its connections to PostgreSQL, which it asks for as long as it lives, and asks the code server less
often whether it is still the same.
"""

import logging
import sys

import dagster as dg
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._daemon.controller import daemon_controller_from_instance
from dagster._utils.interrupts import capture_interrupts, setup_interrupt_handlers

from anamnesis_pipeline.defs.code_server_watch import watch_less_often
from anamnesis_pipeline.defs.kept_instance import keep_connections
from anamnesis_pipeline.defs.recovery import recover


def run(workspace: str) -> None:
    """Until it is told to stop.

    :param workspace: path of the workspace file.
    """
    with dg.DagsterInstance.get() as instance:
        recover(instance)
        keep_connections(instance)
        watch_less_often()
        with daemon_controller_from_instance(
            instance, WorkspaceFileTarget(paths=[workspace]), code_server_log_level="warning"
        ) as controller:
            controller.check_daemon_loop()


def main() -> None:
    """Exit status 0 after SIGTERM or Ctrl-C."""
    _log_ours()
    setup_interrupt_handlers()
    try:
        with capture_interrupts():
            run(sys.argv[1])
    except KeyboardInterrupt:
        return


def _log_ours() -> None:
    """Dagster's loggers have handlers of their own: one of the root would say everything twice."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logging.getLogger("anamnesis").addHandler(handler)


if __name__ == "__main__":
    main()
