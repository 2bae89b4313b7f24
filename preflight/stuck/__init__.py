"""Diagnosis of a job that hangs now.

`collect/` reads evidence from processes and changes nothing; `judge/` interprets the evidence without I/O.
"""
