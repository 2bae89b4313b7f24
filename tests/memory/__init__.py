"""The memory bound beside the memory of real ranks."""
