"""What really ended a failed or hung run, from its logs.

bytes -> `scan` (one pass, a linear-time prefilter) -> events in `seen` -> `causes/`, one file per cause, each of which
claims or stays silent -> `ranking` (the first failure before its consequences) -> an Explanation.
"""
