"""What to ask of the API, what an answer says, and what a run has proven.

- Asking. ``request``, ``window``, ``lateness``, ``anchor``, ``ahead``: which records, from when on, how many at once.
- Answers. ``response``, ``response_json``, ``response_page``; ``clock``: the service's time and when its budget renews.
- A feed's listing. ``listing_profile``: what was learned of it, by ``observations`` of each page (``page_sample``), its
  ``traits``; ``shape``: how its records are read. ``silence``: when it was not answered.
- ``survey``, ``rereading``: what ``dockbell probe`` measures.
"""
