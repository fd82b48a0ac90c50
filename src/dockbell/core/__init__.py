"""The decisions, and nothing else: no await, clock, randomness or I/O anywhere below.

Nouns (``model``, ``pointer``, ``document``, ``moment``, ``key``, ``diff``) are shared by five rooms that do not know
each other:

- ``reading``: what to ask of the API, what an answer says, what a run has proven;
- ``comparing``: canonical form, fingerprints, and the comparison of one page;
- ``publishing``: events, signatures, topics, and what becomes of a delivery;
- ``planning``: how often each feed is read, so that changes wait least;
- ``running``: the request budget and backing off.
"""
