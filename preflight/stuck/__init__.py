"""A job that hangs now: `collect/` reads evidence and changes nothing; `judge/` says, purely, what it means."""
