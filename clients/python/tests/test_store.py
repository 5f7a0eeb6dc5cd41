"""The private store of a call."""

from __future__ import annotations

import unittest
from typing import Any

from holdfast.store import Store


class StoreTest(unittest.TestCase):
    def setUp(self) -> None:
        self.sent: list[Any] = []

    def store(self, given: dict[str, Any] | None) -> Store:
        return Store(given, lambda kind, value: self.sent.append((kind, value)))

    def test_reads_see_the_writes_of_the_call(self) -> None:
        store = self.store({"reads": ["a/"], "entries": {"a/n": 1, "a/x": {"deep": [1]}}, "complete": True})
        store.get("a/x")["deep"].append(2)  # a copy
        store.add("a/n", 2)
        store.put("a/ü", None)
        store.delete("a/x")
        store.add("a/new", 5)
        self.assertEqual(store.list("a/"), {"a/n": 3, "a/new": 5, "a/ü": None})
        self.assertEqual(store.get("a/x", "none"), "none")
        self.assertEqual([value[0]["op"] for _, value in self.sent], ["add", "put", "delete", "add"])

    def test_what_was_not_sent_cannot_be_read(self) -> None:
        store = self.store({"reads": ["a/"], "entries": {"a/1": 1}, "complete": False})
        self.assertEqual(store.get("a/1"), 1)
        for read in (lambda: store.get("a/2"), lambda: store.list("a/"), lambda: store.get("b"), lambda: store.list("a")):
            self.assertRaises(LookupError, read)
        self.assertRaises(LookupError, lambda: self.store(None).get("a"))

    def test_invalid_writes_are_refused(self) -> None:
        store = self.store({"reads": ["a"], "entries": {"a": "text"}})
        for key in ("", "a\x00", "k" * 513, "ü" * 257):
            self.assertRaises(ValueError, store.put, key, 1)
        self.assertRaises(TypeError, store.add, "a", 1)
        self.assertRaises(TypeError, store.add, "b", True)
        self.assertRaises(TypeError, store.put, "b", object())
        self.assertEqual(self.sent, [])
        store.put("k" * 512, 1)
