"""Start the program, and end it in one line whatever happens. Everything else is imported inside."""

from __future__ import annotations

import _thread
import errno
import os
import signal
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

# Which signal asked us to stop, if one did.
_stopped_by: list[int] = []


def main() -> None:
    """Run the program; what we foresee ends in one sentence, not in a traceback."""
    _stopped_by.clear()
    hook, sys.unraisablehook = sys.unraisablehook, _unraisable
    before = {number: signal.signal(number, _stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        code = _run()
    finally:
        # A second Ctrl-C while Python shuts down would print a traceback.
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if _stopped_by else handler)
        sys.unraisablehook = hook
    sys.exit(code)


def _stop(number: int, _: FrameType | None) -> None:
    _stopped_by.append(number)
    raise KeyboardInterrupt


def _unraisable(event: UnraisableHookArgs) -> None:
    """Stop again in a moment if the signal hit a place that cannot raise, such as a weak reference's callback."""
    if _stopped_by and event.exc_type is KeyboardInterrupt:
        _thread.start_new_thread(_stop_again, ())
    else:
        sys.__unraisablehook__(event)


def _stop_again() -> None:
    time.sleep(0.01)
    _thread.interrupt_main()


def _run() -> int:
    if sys.stdout is None:
        # The next file that is opened would become the standard output.
        return _say("standard output is closed, so no result could be shown: open it, or send it to a file.", 2)
    try:
        from locum.cli.program import run

        code = run()
    except BaseException as error:
        if not _stopped_by:
            return _told(error)
    if _stopped_by:
        # Also where a library turned the interrupt into an error of its own.
        from locum.cli import output

        sys.stderr.write(f"stopped{output.stop_hint and '; '}{output.stop_hint}\n")
        return 128 + _stopped_by[0]
    return code


def _told(error: BaseException) -> int:
    """Say what went wrong in one sentence, and with which code to exit; a bug of ours is raised again."""
    import click

    from locum.errors import LocumError, missing_extra
    from locum.io import printable

    known: BaseException | None = error
    if isinstance(error, ModuleNotFoundError):
        known = missing_extra(error)
    if isinstance(known, LocumError):
        return _say(printable(str(known), keep="\n"), known.exit_code)
    if isinstance(error, click.UsageError):
        where = f" See `{error.ctx.command_path} --help`." if error.ctx else ""
        return _say(_sentence(error.format_message()) + where, 2)
    if isinstance(error, click.Abort):
        return _say("stopped: nothing was changed.", 1, "")
    if isinstance(error, MemoryError | OverflowError):
        return _say("this asks for more than the machine's memory holds; ask for less at a time.", 2)
    if isinstance(error, RecursionError):
        return _say("the input is nested too deeply to be what it should be; check where it comes from.", 2)
    if isinstance(error, BrokenPipeError):
        # Whoever read our output has left; say nothing more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if isinstance(error, OSError):
        wrong = error.errno in (errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR)
        return _say(f"{error.strerror or error}: {error.filename or 'the system refused'}.", 2 if wrong else 1)
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):
        # What `Path.resolve` raises before Python 3.13.
        return _say(f"{error}: correct the link.", 2)
    raise error


def _say(text: str, code: int, prefix: str = "error: ") -> int:
    if sys.stderr is not None:
        sys.stderr.write(f"{prefix}{text}\n")
    return code


def _sentence(text: str) -> str:
    """Click's message with a full stop, whichever way it ends."""
    text = " ".join(text.split())
    return text if text.endswith((".", "?")) else f"{text}."
