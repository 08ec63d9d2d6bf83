"""The one error that a user can mend; __main__ prints it without a traceback."""


class Failure(Exception):
    """What is wrong with which file and field, and what to do about it."""

    def __init__(self, where, what, remedy=""):
        super().__init__(f"{where}: {what}" + (f"; {remedy}" if remedy else ""))
