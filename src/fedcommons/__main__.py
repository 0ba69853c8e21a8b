"""`python -m fedcommons`: the command line."""

from fedcommons.cli.app import main

if __name__ == "__main__":
    main()
