"""Events, signatures, topics, and what becomes of a delivery."""
