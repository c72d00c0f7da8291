"""Resources of an agent and of an account: agents, documents, connections, hooks, Telegram bots, tokens."""
