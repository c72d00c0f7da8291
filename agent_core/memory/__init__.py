"""What a conversation holds on to: its parts, what of them lasts, and whose words they were."""
