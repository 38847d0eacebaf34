"""python -m attile ...: the command attile that came with the package."""
import os
import sys


def main():
    command = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "attile")
    os.execv(command, ["attile", *sys.argv[1:]])


if __name__ == "__main__":
    main()
