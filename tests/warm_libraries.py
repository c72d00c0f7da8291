"""What every process of ours imports of others' code; loaded once, in the process that the others are forked from."""

import anyio._backends._asyncio  # noqa: F401
import celery.apps.beat
import celery.apps.worker
import celery.bin.celery
import celery.concurrency.thread
import celery.worker.consumer  # noqa: F401
import croniter  # noqa: F401
import django.contrib.admin
import django.contrib.postgres.fields
import django.core.management
import django.db.backends.postgresql.base  # noqa: F401
import drf_spectacular.utils  # noqa: F401
import genai_prices.data  # noqa: F401
import httpx2  # noqa: F401
import kombu.transport.redis  # noqa: F401
import mcp.client.streamable_http  # noqa: F401
import openai.resources.chat.chat  # noqa: F401
import psycopg_pool  # noqa: F401
import pydantic_ai.direct
import pydantic_ai.models.openai
import pydantic_ai.providers.openai
import pydantic_ai.providers.openai_compatible  # noqa: F401
import sqlalchemy.dialects.postgresql  # noqa: F401
import structlog  # noqa: F401
