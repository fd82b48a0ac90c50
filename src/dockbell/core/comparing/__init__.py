"""Changes: what one page shows, compared with the stored snapshots.

- ``change_detector``: what one feed's records came to. ``page_comparison``: a page's way through the steps, and its bad
  records. ``record_rules``: keys, times, details. ``canon``: the canonical form and its fingerprint.
- Whether a difference is an event. ``silence_rules``, ``drift``: ordered rules, each with its reason. ``recording``:
  the change itself.
- ``deletion_rules``: which absent records are deleted. ``seen_rows``: which records a pass has shown.
- ``page_diff``, ``read_context``, ``candidate``: their nouns.
"""
