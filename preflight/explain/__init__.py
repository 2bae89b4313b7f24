"""Find what really ended a failed or hung run, from its logs.

bytes -> `log_scanner` (one pass, a linear-time prefilter) -> events in `log_evidence` -> `causes/` (one file per cause;
each cause makes a claim or returns None) -> `cause_ranking` (the first failure before its consequences) ->
`explain_logs`, which builds an Explanation. A failed trial of `check` takes the same path, from `failed_trial`.
"""
