"""`python -m preflight` is the same command as `preflight`."""

from preflight.cli import main

if __name__ == "__main__":
    main()
