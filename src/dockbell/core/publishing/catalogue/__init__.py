"""What a configuration publishes and where, as an AsyncAPI document and JSON Schemas (draft 7, as in AsyncAPI)."""
