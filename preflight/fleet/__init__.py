"""Many nodes or reports: what good ones reach, which ones are outliers. Pure."""
