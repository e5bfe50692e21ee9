"""The `anamnesis` command. `anamnesis mcp` skips the CLI, since a client waits for its first answer."""

import sys

INTERRUPTED = 130
"""Exit status after Ctrl-C, as in shells."""


def main() -> None:
    """Run the command. Ctrl-C ends it with a one-line message, even during imports."""
    try:
        if sys.argv[1:] == ["mcp"]:
            from anamnesis_pipeline.sidecar.mcp.stdio import main as serve_mcp

            sys.exit(serve_mcp())
        from anamnesis_pipeline.cli.app import main as run_command

        run_command()
    except (KeyboardInterrupt, SystemExit) as exc:
        if isinstance(exc, SystemExit) and exc.code != INTERRUPTED:  # typer raises SystemExit for an interrupt
            raise
        sys.stderr.write("anamnesis: stopped by Ctrl-C; what was finished before is kept\n")
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
