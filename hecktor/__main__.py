"""Entry point of everything: `python -m hecktor COMMAND`, the same as `hecktor COMMAND`."""

from hecktor.cli import entry

if __name__ == "__main__":  # workers of a process pool import this module
    entry()
