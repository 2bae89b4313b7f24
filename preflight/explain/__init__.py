"""Find the cause of a failed or hung run in its logs.

`log_scanner` reads the bytes of the logs in one pass, with a linear-time prefilter. `log_evidence` holds the relevant
lines as events. Each file of `causes/` describes one possible cause, and returns a `Claim` (this cause with its
evidence) or None. `cause_ranking` puts the first failure before its consequences. `explain_logs` builds an Explanation.
A failed trial of `check` takes the same path, from `failed_trial`.
"""
