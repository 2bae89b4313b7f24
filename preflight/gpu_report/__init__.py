"""Run all tests that need a real GPU, and pack the results into an archive. This is `preflight gpu-report`."""
