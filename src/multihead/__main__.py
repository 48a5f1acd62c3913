"""`python -m multihead` is the same as `multihead`."""

from multihead.cli.main import main

if __name__ == "__main__":
    main()
