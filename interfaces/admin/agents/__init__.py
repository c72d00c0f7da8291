"""The admin pages of agents and of what belongs to them."""
