"""What a configuration publishes and where, as an AsyncAPI document and JSON Schemas (draft 7, as AsyncAPI has them).

- ``learning``: the schema of records, from those that were seen.
- ``messages``: the events of a resource, and what is said besides, each with its schema.
- ``channels``: where each sink takes them.
- ``document``: all of it together.
"""
