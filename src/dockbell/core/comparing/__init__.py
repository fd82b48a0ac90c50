"""Canonical form, fingerprints, differences, and the judging of one page against what is stored."""
