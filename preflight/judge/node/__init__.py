"""Checks of the values of one node. Each file has one check or a few checks with a common subject."""
