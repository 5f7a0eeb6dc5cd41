"""The examples of docs/agents-python.md and of the README run as they stand."""

from __future__ import annotations

import pathlib
import re
import sys
import types
import unittest
import unittest.mock
from typing import Any

import holdfast

ROOT = pathlib.Path(__file__).parents[3]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class TestPages(unittest.TestCase):
    def run_page(self, path: str) -> None:
        """run_page runs the blocks of a page one after another, and then their tests."""
        page = types.ModuleType("page")
        names: dict[str, Any] = page.__dict__
        unittest.mock.patch.dict(sys.modules, {"page": page}).start()
        self.addCleanup(unittest.mock.patch.stopall)
        blocks = list(BLOCK.finditer((ROOT / path).read_text()))
        self.assertTrue(blocks, "the page has no example")
        for block in blocks:
            line = (ROOT / path).read_text()[: block.start()].count("\n") + 1
            exec(compile("\n" * line + block[1], path, "exec", dont_inherit=True), names)
        made = [value for value in names.values() if isinstance(value, holdfast.Agent)]
        self.assertTrue(holdfast.serve(made, secrets="").description["agents"])
        for name, value in list(names.items()):
            if name.startswith("test_"):
                with self.subTest(name):
                    value()

    def test_agents_in_python(self) -> None:
        self.run_page("docs/agents-python.md")

    def test_readme(self) -> None:
        self.run_page("clients/python/README.md")


if __name__ == "__main__":
    unittest.main()
