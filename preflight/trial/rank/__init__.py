"""Code that runs inside a rank. torch is imported here and nowhere else."""
