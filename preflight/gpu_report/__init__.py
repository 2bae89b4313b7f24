"""Run all tests that need a real GPU, and pack the results into an archive: `preflight gpu-report`."""
