"""Plan the communication settings to test, and search for the settings that work best."""
