"""What a SuperNode runs at a site: one question comes in, one answer goes out, and nothing else does."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode

from locum.errors import ConfigError, FormatError, LocumError
from locum.federated.protocol import Request
from locum.federated.transport.flower import from_record, to_record


def make_app(site_file: Callable[[Context], str | Path]) -> ClientApp:
    """A ClientApp that asks the site whose settings `site_file` finds.

    If the site fails, the coordinator learns the class of the error and no more: its text can hold anything. The text
    goes to this process's standard error, which stays at the site.
    """
    app = ClientApp()

    @app.train()
    def reply(message: Message, context: Context) -> Message:
        try:
            request = from_record(message.content)
            if not isinstance(request, Request):
                raise FormatError("An answer came where a question was expected.")
            # Late: it takes seconds, and a message that is refused need not wait for it.
            from locum.federated.site import Site

            return Message(to_record(Site(site_file(context)).reply(request)), reply_to=message)
        except Exception as error:  # Flower would send its text to the coordinator
            if isinstance(error, LocumError):
                print(f"locum: {error}", file=sys.stderr, flush=True)
            else:
                traceback.print_exc()
            told = Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=type(error).__name__)
            return Message(told, reply_to=message)

    return app


def _from_node_config(context: Context) -> str:
    # Never from the run's settings: whoever starts a run must not choose which files of a site are read.
    file = context.node_config.get("site")
    if not isinstance(file, str) or not file:
        raise ConfigError("This node does not know its site: start it with --node-config 'site=\"PATH/site.toml\"'.")
    return file


app = make_app(_from_node_config)
