"""What several test modules build their tests from."""

from pathlib import Path

import pytest

# So that a failed assertion in them shows its values, as in a test module.
pytest.register_assert_rewrite(*(f"{__name__}.{path.stem}" for path in Path(__file__).parent.glob("[!_]*.py")))
