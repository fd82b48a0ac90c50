"""The commands: they parse, call and print; the logic is below."""
