"""The command ``otel-hardware``: one class per sub-command, in a file of its own."""

TYPE_CHECKING = False  # nothing is imported before Ctrl-C is minded, not even typing
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: "Sequence[str] | None" = None) -> int:
    """Run a sub-command. Only for the main thread.

    Ctrl-C ends the process at once, by its signal, where the command has nothing to put away.

    Returns:
        Its exit status; 2 for a mistake in the arguments, 130 after Ctrl-C.
    """
    try:
        from opentelemetry.instrumentation.hardware.cli.interrupt import abrupt

        with abrupt():
            from opentelemetry.instrumentation.hardware.cli.command_line import run

            return run(argv)
    except KeyboardInterrupt:
        return 130
