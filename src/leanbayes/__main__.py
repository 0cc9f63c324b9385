"""`python -m leanbayes` is the `leanbayes` command."""

from leanbayes.cli import main

if __name__ == "__main__":
    main()
