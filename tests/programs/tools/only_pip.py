"""A `pip` for the blocks of the documentation: installs nothing, and fails if what it is to install does not exist.

It knows this checkout with its extras, and the distributions that are installed here.
"""

from __future__ import annotations

import sys
from importlib.metadata import metadata, version

from packaging.requirements import Requirement

OURS = "opentelemetry-instrumentation-hardware"


def check(word: str) -> None:
    """Exit with a message if a word of the command line cannot be installed."""
    if word.startswith("."):
        word = OURS + word[1:]
    elif word.startswith(OURS):
        sys.exit(f"{word} is not on a package index yet")
    requirement = Requirement(word)
    version(requirement.name)
    unknown = requirement.extras - {*metadata(requirement.name).get_all("Provides-Extra", [])}
    if unknown:
        sys.exit(f"{requirement.name} has no extra {unknown}")


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    if command != "install" or not words:
        sys.exit(f"pip {command} is not known here")
    for each in words:
        check(each)
