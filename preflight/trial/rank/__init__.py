"""Code that runs inside a rank. torch is imported in this package and nowhere else."""
