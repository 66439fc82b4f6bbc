"""Run the test Hub by hand: `python -m tests.support.hub --root DIR --port N`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.support.hub.accounts import Account, Accounts
from tests.support.hub.hub import Limits
from tests.support.hub.log import Record
from tests.support.hub.server import HubServer

_WRITE, _READ = "hf_write", "hf_read"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.support.hub", description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="folder of the state; made if new")
    parser.add_argument("--port", type=int, default=0, help="port of the Hub (default: a free one)")
    parser.add_argument("--user", default="tester", help="user of the tokens of a new state")
    parser.add_argument("--org", action="append", default=[], help="organisation of that user")
    parser.add_argument("--trust", action="append", default=[], help="trusted kernel publisher")
    parser.add_argument("--part-size", type=int, help="bytes of a part of a multipart upload")
    return parser


def _follow(record: Record) -> None:
    fault = f" fault={record.fault}" if record.fault else ""
    what = f"{record.status or 'cut'} {record.method} {record.target}"
    print(f"{what} in={record.received} out={record.sent}{fault}", file=sys.stderr, flush=True)


def main() -> None:
    """Serve until Ctrl-C."""
    options = _parser().parse_args()
    accounts = None
    if not (options.root / "accounts.json").exists():
        names = tuple(options.org)
        tokens = {
            _WRITE: Account(options.user, "write", names),
            _READ: Account(options.user, "read", names),
        }
        accounts = Accounts(tokens, frozenset(options.trust))
    limits = Limits(part_size=options.part_size)
    with HubServer(options.root, accounts, limits, port=options.port, follow=_follow) as server:
        print(
            f"export HF_ENDPOINT={server.endpoint} HF_TOKEN={_WRITE} HF_HUB_DISABLE_XET=1",
            flush=True,
        )
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            return


main()
