"""`python -m services` is `bridle`."""

from services.cli import main

if __name__ == "__main__":
    main()
