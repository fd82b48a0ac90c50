"""Changes: what one page shows, compared with the stored snapshots.

- ``change_detector``: a page's way through the steps. ``identifying``, ``record_identity``: keys, and records with a
  bad key. ``canon``: the canonical form and its fingerprint. ``page_comparison``: one record after the other.
- Whether a difference is an event. ``silence_rules``, ``staleness``, ``holding``, ``drift``: ordered rules, each with
  its reason. ``change_kind``, ``change_timing``, ``recording``: the change itself.
- ``deletion``: which absent records are deleted. ``seen_rows``: which records a pass has shown.
- ``page_diff``, ``read_context``, ``candidate``: their nouns. ``detail_members``: members that only a detail shows.
"""
