"""The command view."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.answer import Answer, print_result
from tokenmill.cli.dataset_arguments import add_dataset, add_tokenizer, dataset_of

if TYPE_CHECKING:
    from tokenmill.cli.parser import Commands


def add_commands(commands: "Commands") -> None:
    """Adds the command to the parser."""
    view = commands.add_parser(
        "view",
        help="show a token dataset in the browser",
        description="Serves a page on 127.0.0.1 until Ctrl-C: documents and sequences with their tokens, masks and splits; a "
        "search by text, token or id; the vocabulary with its counts; and two tokenizers beside each other on a "
        "text that you type. It prints the page's address, which has a secret, so that other users of the machine"
        " get nothing. Nothing is changed. With --json, it prints one JSON object with the address when the page "
        "is ready.",
        epilog="example: tokenmill view data/tokens --other gpt2.tokenizer.json",
    )
    add_dataset(view)
    add_tokenizer(view)
    view.add_argument("--other", type=Path, metavar="PATH", help="another tokenizer, to compare with the dataset's")
    view.add_argument("--port", type=int, default=0, metavar="N", help="the port of the page (default: a free one)")
    view.set_defaults(run=_view)


def _view(asked: argparse.Namespace) -> Answer:
    from tokenmill.features.view.answering import Answering
    from tokenmill.features.view.server import ViewServer

    dataset = Path(dataset_of(asked))
    with ViewServer(Answering(dataset, asked.tokenizer, asked.other), asked.port) as server:
        if getattr(asked, "json", False):
            print_result("view", {"url": server.url})
        else:
            print(server.url, flush=True)
        server.serve_forever()
    return Answer({"did": "the page is closed"}, lambda: None, is_asked_for=False)
