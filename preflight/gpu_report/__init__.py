"""Run everything that only a real GPU can show, and pack the results: `preflight gpu-report`."""
