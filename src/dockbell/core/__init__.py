"""The decisions, and nothing else: no await, clock, randomness or I/O anywhere below.

Nouns (``model``, ``pointer``, ``document``, ``moment``, ``key``, ``diff``) are shared by four rooms that do not know
each other:

- ``reading``: what to ask of the API, what an answer says, what a run has proven;
- ``comparing``: canonical form, fingerprints, and the comparison of one page;
- ``publishing``: events, signatures, topics, and what becomes of a delivery;
- ``running``: the request budget and backing off.
"""
