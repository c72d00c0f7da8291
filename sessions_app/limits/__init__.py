"""What one user may have and do: requests, stored rows and bytes, running turns, limits of turns. Money: `spending`."""
