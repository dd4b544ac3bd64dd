"""Entry point of `python -m hecktor COMMAND`, which is the same as `hecktor COMMAND`."""

from hecktor.cli import entry

# Worker processes import this module under another name and must not run the command.
if __name__ == "__main__":
    entry()
