"""Code that runs as a rank. torch is imported here and nowhere else."""
