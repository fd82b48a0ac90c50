"""Canonical form, fingerprints, and the comparison of one page with the stored snapshots."""
