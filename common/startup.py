"""What can stop a process before it serves."""


class StartupError(Exception):
    """One line that tells the operator what to change; the command prints it and exits with code 1."""
