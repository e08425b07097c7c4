"""The commands view and locate."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.answer import Answer, print_result, text
from tokenmill.cli.dataset_arguments import add_dataset, add_tokenizer, dataset_of
from tokenmill.errors import EXIT_DONE, EXIT_NO

if TYPE_CHECKING:
    from tokenmill.cli.parser import Commands


def add_commands(commands: "Commands") -> None:
    """Adds these commands to the parser."""
    locate = commands.add_parser(
        "locate",
        help="find the document of a token, or the tokens of a document",
        description="Looks into the document index beside the dataset, and into the dataset for the tokens around a token. The "
        "documents are not needed. Exit code 0: found, 1: there is no such token or document.",
        epilog="example: tokenmill locate --token 17",
    )
    add_dataset(locate)
    wanted = locate.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--token", type=int, metavar="N", help="a position in the whole dataset, from 0")
    wanted.add_argument(
        "--id", metavar="ID", help="a document's id; where ids are rows, the document of that row of every input file"
    )
    wanted.add_argument(
        "--digest", metavar="HEX", help="the sha256 of a document's text, or its first digits, at least 8"
    )
    add_tokenizer(locate)
    locate.set_defaults(run=_locate)
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


def _locate(options: argparse.Namespace) -> Answer:
    from tokenmill.features.view.locate import lines_of, locate_digest, locate_id, locate_token

    dataset = Path(dataset_of(options))
    if options.token is not None:
        located = locate_token(dataset, options.token, options.tokenizer)
    elif options.id is not None:
        located = locate_id(dataset, options.id)
    else:
        located = locate_digest(dataset, options.digest)
    return text(located.as_json(), lines_of(located), EXIT_DONE if located.n_found else EXIT_NO)


def _view(options: argparse.Namespace) -> Answer:
    from tokenmill.features.view.answering import Answering
    from tokenmill.features.view.server import ViewServer

    dataset = Path(dataset_of(options))
    with ViewServer(Answering(dataset, options.tokenizer, options.other), options.port) as server:
        if getattr(options, "json", False):
            print_result("view", {"url": server.url})
        else:
            print(server.url, flush=True)
        server.serve_forever()
    return Answer({"did": "the page is closed"}, lambda: None, is_asked_for=False)
