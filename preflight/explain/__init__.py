"""Find the cause of a failed or hung run in its logs."""
# `log_scanner` reads the logs in one pass. `log_evidence` holds the relevant lines as events. Each file of `causes/`
# decides whether one possible cause applies. `cause_ranking` puts the first failure before its consequences.
# `explain_logs` builds an Explanation. `failed_trial` explains a failed test run of `check` in the same way.
