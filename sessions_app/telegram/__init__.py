"""Telegram bots and the chats bound to them, and the client of the Bot API."""
