"""Checks of one node's facts; one file each, named as the check is."""
