"""What `make test-hostile` runs: kills at random instants, starved starts, garbage for every parser."""
