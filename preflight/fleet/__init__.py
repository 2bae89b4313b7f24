"""Many nodes or reports: what good ones reach, which ones stand out. Pure."""
