"""What all tests share."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write made-up captures and expected output anew, instead of comparing"
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether files that are made from something else are to be written anew."""
    return bool(request.config.getoption("--rewrite"))
