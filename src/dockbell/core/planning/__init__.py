"""How often each feed of an account is read, so that the mean delay of a change is least.

- ``demand``: what each feed asks for. ``supply``: the requests that can be planned with.
- Learned: ``rates``, how often a feed's records change; ``costs``, how many requests a run takes.
- ``division``: the law, and the interval of each feed with its reason; when to act on another division, and tell of it.
- ``forecast``: the delay that a division comes to, the least that any could have, and what would help.
- ``spreading``: when each page of a pass is due.
- ``stored_plan``: what is kept of all this with a feed.
"""
