"""The one exception that ends a verb with one line on the screen."""


class LabError(Exception):
    """What a person can act on: its text is printed as one line on stderr and `./lab` exits with 1;
    no traceback."""
