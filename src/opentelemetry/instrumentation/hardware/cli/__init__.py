"""The command ``otel-hardware``: one class and file per sub-command."""

TYPE_CHECKING = False  # typing is not imported before Ctrl-C is handled
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: "Sequence[str] | None" = None) -> int:
    """Run a sub-command. Must be called in the main thread.

    Ctrl-C kills the process immediately if the command has nothing to clean up.

    Returns:
        The exit status: 2 for wrong arguments, 130 after Ctrl-C.
    """
    try:
        from opentelemetry.instrumentation.hardware.cli.interrupt import killed_by_ctrl_c

        with killed_by_ctrl_c():
            from opentelemetry.instrumentation.hardware.cli.command_line import run

            return run(argv)
    except KeyboardInterrupt:
        return 130
