"""The mailbox: updates that are deposited in a session and shown with its next turn."""
