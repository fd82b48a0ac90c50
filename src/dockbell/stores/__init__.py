"""Where snapshots, events and progress are kept, each page in one transaction."""
