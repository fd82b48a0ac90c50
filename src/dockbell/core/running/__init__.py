"""The request budget, and how long to back off."""
