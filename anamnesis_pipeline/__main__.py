"""The `anamnesis` command. `anamnesis mcp` goes its own short way: a client waits for it to answer."""

import sys

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


def main() -> None:
    """Entry point. Ctrl-C ends it in one line, also while it loads."""
    try:
        if sys.argv[1:] == ["mcp"]:
            from anamnesis_pipeline.mcp_server.stdio import main as serve_mcp

            sys.exit(serve_mcp())
        from anamnesis_pipeline.cli import main as run_command

        run_command()
    except (KeyboardInterrupt, SystemExit) as exc:
        if isinstance(exc, SystemExit) and exc.code != INTERRUPTED:  # typer makes one of an interrupt
            raise
        sys.stderr.write("anamnesis: stopped by Ctrl-C; what was finished before is kept\n")
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
