"""The implementation of `preflight run`, which checks the node, runs the job and explains a failure."""
# This package imports little, because the package stays in memory during the job.
