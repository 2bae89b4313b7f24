"""Diagnosis of a job that hangs now.

`collect/` reads data from processes and changes nothing. `judge/` interprets the data without I/O.
"""
