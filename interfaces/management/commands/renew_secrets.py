from typing import Any

from django.core.management.base import BaseCommand, CommandError

from sessions_app.connections.edit import renew_secrets
from sessions_app.telegram.bots import renew_tokens


class Command(BaseCommand):
    help = (
        "Encrypt the stored secrets of connections and the tokens of Telegram bots with the present SECRET_KEY,"
        " so that former ones can go."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print what was done. Exit code 1 if a secret cannot be read with any of the keys."""
        (secrets, unreadable), (tokens, unreadable_tokens) = renew_secrets(), renew_tokens()
        unreadable += unreadable_tokens
        self.stdout.write(f"{secrets + tokens} secrets encrypted with SECRET_KEY")
        if unreadable:
            raise CommandError(
                f"cannot be read with SECRET_KEY or SECRET_KEY_FALLBACKS: {', '.join(unreadable)}"
            )
