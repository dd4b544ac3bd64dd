"""Entry point of training: `python -m baseline STEP`."""

from baseline.cli import main
from contract.entry import run_program

if __name__ == "__main__":
    run_program(main)
