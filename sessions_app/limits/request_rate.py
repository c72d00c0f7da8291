"""Rate limiting in the database: one statement for each request, so that all web processes count together.

The generic cell rate algorithm: a row holds the time at which the full allowance is available again. Each request adds
`period / limit` to it. A request that would move it more than `period` into the future is refused and adds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from sessions_app.postgres.rows import fetch

MOST_FORGOTTEN = 100  # expired rows that are deleted with each new row
_TAKE = """
WITH taken AS (
  INSERT INTO sessions_app_allowance AS a (key, full_at) VALUES (%(key)s, now() + make_interval(secs => %(each)s))
  ON CONFLICT (key) DO UPDATE SET full_at = greatest(a.full_at, now()) + make_interval(secs => %(each)s)
    WHERE greatest(a.full_at, now()) + make_interval(secs => %(each)s) <= now() + make_interval(secs => %(period)s)
  RETURNING xmax = 0 AS is_new, extract(epoch FROM full_at - now()) AS used
)
SELECT (SELECT is_new FROM taken), (SELECT used FROM taken), (
  SELECT extract(epoch FROM greatest(full_at, now()) + make_interval(secs => %(each)s)
    - make_interval(secs => %(period)s) - now()) FROM sessions_app_allowance WHERE key = %(key)s)"""
# a CTE runs once; a plain subselect may run for each row
_FORGET = """
WITH old AS (
  SELECT key FROM sessions_app_allowance WHERE full_at < now() ORDER BY full_at LIMIT %s FOR UPDATE SKIP LOCKED
)
DELETE FROM sessions_app_allowance AS a USING old WHERE a.key = old.key"""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """`limit` requests in `seconds`: all at once, then one more after each `seconds / limit`."""

    limit: int
    seconds: int

    @property
    def seconds_each(self) -> float:
        """Seconds that one request uses up. Rounded down to microseconds, so that `limit` of them fit."""
        return max(self.seconds * 1_000_000 // self.limit, 1) / 1_000_000


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A counted request. `wait`: 0 when it is allowed, else the seconds until the next one is.

    `remaining` is how many further requests are allowed now, `full_in` the seconds until all of `limit` are.
    """

    rate: Rate
    wait: float
    remaining: int
    full_in: float


def take_allowance(who: str, rate: Rate) -> float:
    """Count one request. Returns 0 when it is allowed, else the seconds until the next one is."""
    return count_request(who, rate).wait


def count_request(who: str, rate: Rate) -> Taken:
    """Count one request, unless it is refused."""
    # the rate is in the key: after a change of RONDO_THROTTLE, what was used under the old rate does not count
    key = f"{who} {rate.limit}/{rate.seconds}"
    given = {"key": key, "each": rate.seconds_each, "period": rate.seconds}
    [(is_new, taken, seconds)] = fetch(_TAKE, given)
    if is_new is None:
        # without a wait the row is newer than our snapshot
        wait = max(float(seconds or 0), 0.001)
        return Taken(rate=rate, wait=wait, remaining=0, full_in=wait + rate.seconds - rate.seconds_each)
    if is_new:
        fetch(_FORGET, [MOST_FORGOTTEN])
    used = max(float(taken), 0)
    left = int(
        (rate.seconds - used) / rate.seconds_each + 0.001
    )  # nothing of the last one is lost by rounding
    return Taken(rate=rate, wait=0, remaining=max(left, 0), full_in=used)
