"""Checks of one node's facts: one file per check, with the check's name."""
