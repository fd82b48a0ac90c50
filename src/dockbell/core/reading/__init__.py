"""What to ask of the API, what an answer says, and what a run has proven."""
