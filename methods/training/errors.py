"""The one error that a user can mend; __main__ prints it without a traceback."""


class Failure(Exception):
    """What is wrong with which file, field or option, and what to do about it.

    Exit codes as in docs/exit-codes.md: 2 for an option, 6 for the machine, 7 for files.
    """

    def __init__(self, where, what, remedy="", code=None):
        super().__init__(f"{where}: {what}" + (f"\n  hint: {remedy}" if remedy else ""))
        self.code = code or (2 if str(where).startswith("--") else 7)
