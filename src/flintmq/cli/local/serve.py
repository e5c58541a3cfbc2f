"""`flintmq serve`: settings from the file and the options, then the server until it ends."""

from __future__ import annotations

import argparse
import gc
from functools import partial

from flintmq import config
from flintmq.errors import ConfigFault


def serve(options: argparse.Namespace) -> int:
    """Run the broker; the exit status is the server's."""
    file = None
    if options.config is not None:
        from pathlib import Path  # by whoever has a file: it takes a millisecond to load

        file = Path(options.config)
    read = partial(
        config.load,
        file,
        hosts=options.host,
        port=options.port,
        directory=options.data,
        log_level=options.log_level,
        definitions=options.definitions,
        management_port=options.management_port,
        fast09_port=options.fast09_port,
    )
    settings = read()
    if options.rehearsal is not None and not options.until_input_ends:
        raise ConfigFault("--rehearsal takes commands from standard input: give --until-input-ends too")
    # What is loaded now stays: the collector begins in `run`, which leaves it out.
    gc.disable()
    try:
        # After the settings: a mistake in them is told before anything heavy is loaded.
        from flintmq.server import run

        return run(
            settings,
            options.until_input_ends,
            None if options.config is None else partial(read, while_running=True),
            options.rehearsal,
        )
    except ConfigFault as fault:  # what only the broker can tell: topology, policies, hashes, certificates
        if options.config is None:
            raise
        raise ConfigFault(f"{options.config}: {fault}") from None
    finally:
        gc.enable()
