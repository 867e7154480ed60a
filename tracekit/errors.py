"""The one exception type for faults in what the user gave; everything else is a bug of ours."""


class TracekitError(Exception):
    """A fault in the input, in one line: what is wrong, and what to do about it.

    `problem` says what is wrong; `remedy`, if any, what to do. `str()` joins both into the line that the
    command line prints before it exits with 1.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        self.problem = " ".join(problem.split())
        self.remedy = " ".join(remedy.split())
        super().__init__(f"{self.problem}: {self.remedy}" if self.remedy else self.problem)
