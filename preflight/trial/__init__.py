"""Run one configuration on all ranks. The package `rank` has the code that runs inside the ranks."""
