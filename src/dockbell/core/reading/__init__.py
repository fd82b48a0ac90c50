"""What to ask of the API, what an answer says, and what a run has proven.

- Asking. ``request``, ``window``, ``lateness``, ``reach``, ``page_limit``, ``anchor``, ``ahead``: which records, from
  when on, how many at once.
- Answers. ``response`` and its parts ``response_…``, ``success_errors``, ``allowance``, ``clock``.
- A feed's listing. ``listing_profile``: what was learned of it, by ``observations`` of each page; ``shape``,
  ``read_settings``: how its records are read. ``silence``: when it was not answered.
- ``survey``, ``rereading``: what ``dockbell probe`` measures.
"""
