"""The door of Telegram: its bots talk with agents, by long polling and deliveries."""
