"""Diagnosis of a job that hangs now.

`collect/` reads evidence and changes nothing; `judge/` interprets it without I/O.
"""
