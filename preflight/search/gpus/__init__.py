"""Which GPUs to use, how they are tested by themselves, and what their links should carry."""
