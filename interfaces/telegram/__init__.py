"""Telegram: bots talk with agents, by long polling and deliveries."""
