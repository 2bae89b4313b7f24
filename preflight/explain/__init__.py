"""What really ended a failed or hung run, from its logs.

bytes -> `log_scanner` (one pass, a linear-time prefilter) -> events in `log_evidence` -> `causes/`, one file per cause,
each of which claims or stays silent -> `cause_ranking` (the first failure before its consequences) -> `explain_logs`
makes an Explanation of them. A failed trial of `check` goes the same way, from `failed_trial`.
"""
