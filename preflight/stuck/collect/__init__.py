"""Evidence from one node. Each kind of evidence is read separately, in parallel, within its own time limit."""
