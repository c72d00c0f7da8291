"""A process that makes calls under caps until it is killed: `python spender.py <database> <caps> <log>`.

It writes what each call costs to the log when it makes the call, between the reservation and its settlement.
"""

from __future__ import annotations

import os
import random
import sys
import uuid

import psycopg

RESERVE = "SELECT reservation FROM rondo_reserve(%s, %s, %s, %s, %s::jsonb)"
SETTLE = "SELECT * FROM rondo_settle(%s, %s, %s)"


def main(database: str, caps: str, log: str) -> None:
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    chance = random.Random(os.getpid())
    with psycopg.connect(database, autocommit=True) as own:
        while True:
            most, used = chance.randrange(50, 150), chance.randrange(50)
            [reservation] = own.execute(RESERVE, [os.getpid(), uuid.uuid4(), most, 2 * most, caps]).fetchone()  # type: ignore[misc]
            if reservation is not None:
                os.write(out, f"{used}\n".encode())
                own.execute(SETTLE, [reservation, used, 2 * used])


if __name__ == "__main__":
    main(*sys.argv[1:])
