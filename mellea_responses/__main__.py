"""`python -m mellea_responses` is the command `mellea-responses`, for where scripts are not on the path."""

from mellea_responses.cli.main import main

if __name__ == "__main__":
    main()
