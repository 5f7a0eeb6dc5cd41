from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import functools
import random
import typing
import unittest
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict, Union

import jsonschema
import pydantic

from holdfast.schema import Codec, Field, Misfit, Unsupported, codec, to_json


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Item:
    """An item of an order."""

    name: Annotated[str, "What it is."]
    count: int = 1
    tags: list[str] = dataclasses.field(default_factory=list)
    note: Optional[str] = None


@dataclasses.dataclass
class Tree:
    value: int
    children: list[Tree] = dataclasses.field(default_factory=list)


class Place(TypedDict):
    city: str
    zip: typing.NotRequired[str] if hasattr(typing, "NotRequired") else str  # type: ignore[valid-type]


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(description="Who.", min_length=1)
    age: int = pydantic.Field(ge=0)
    friends: list[Person] = []


if hasattr(Person, "update_forward_refs"):
    Person.update_forward_refs()  # pydantic 1


@dataclasses.dataclass
class Span:
    start: int
    end: int

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError("the end is before the start")


UserID = NewType("UserID", str)


class Types:
    """Types makes random types, each with values of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0

    def make(self, depth: int) -> tuple[Any, Any]:
        """make returns a type and a function that makes a value of it."""
        r = self.random
        leaves = [
            self.boolean,
            self.integer,
            self.number,
            self.text,
            self.nothing,
            self.literal,
            self.enumeration,
            self.limited,
            self.anything,
        ]
        nested = [
            self.array,
            self.unique,
            self.pair,
            self.row,
            self.mapping,
            self.data,
            self.typed,
            self.optional,
            self.union,
        ]
        return r.choice(leaves if depth == 0 else leaves + nested * 2)(depth)

    def boolean(self, depth: int) -> tuple[Any, Any]:
        return bool, lambda: self.random.random() < 0.5

    def integer(self, depth: int) -> tuple[Any, Any]:
        return int, lambda: self.random.randint(
            -(2**60), 2**60
        ) if self.random.random() < 0.3 else self.random.randint(-3, 3)

    def number(self, depth: int) -> tuple[Any, Any]:
        return float, lambda: self.random.choice([0.0, -1.5, 1e300, self.random.uniform(-5, 5)])

    def text(self, depth: int) -> tuple[Any, Any]:
        return self.random.choice([str, UserID]), lambda: self.random.choice(["", "a", 'ä\n"', "null", "1", "x" * 50])

    def nothing(self, depth: int) -> tuple[Any, Any]:
        return type(None), lambda: None

    def anything(self, depth: int) -> tuple[Any, Any]:
        return Any, lambda: self.random.choice([1, "a", None, {"a": [True]}])

    def literal(self, depth: int) -> tuple[Any, Any]:
        members = self.random.sample(["a", "b", 1, 2, True, False, None, "1"], self.random.randint(1, 4))
        members = [m for i, m in enumerate(members) if not any(m == o and type(m) is type(o) for o in members[:i])]
        return Literal[tuple(members)], lambda: self.random.choice(members)

    def enumeration(self, depth: int) -> tuple[Any, Any]:
        chosen: Any = self.random.choice([Color, Level])
        return chosen, lambda: self.random.choice(list(chosen))

    def limited(self, depth: int) -> tuple[Any, Any]:
        return self.random.choice(
            [
                (Annotated[int, Field(ge=0, lt=10)], lambda: self.random.randint(0, 9)),
                (
                    Annotated[str, Field("Short.", min_length=1, max_length=3, pattern="^[a-c]+$")],
                    lambda: self.random.choice(["a", "bc"]),
                ),
                (Annotated[list[int], Field(max_length=2)], lambda: [1] * self.random.randint(0, 2)),
            ]
        )

    def array(self, depth: int) -> tuple[Any, Any]:
        item, value = self.make(depth - 1)
        return self.random.choice([list, Sequence])[item], lambda: [value() for _ in range(self.random.randint(0, 3))]

    def unique(self, depth: int) -> tuple[Any, Any]:
        return set[str], lambda: set(self.random.sample(["a", "b", "c"], self.random.randint(0, 3)))

    def pair(self, depth: int) -> tuple[Any, Any]:
        (first, make_first), (second, make_second) = self.make(depth - 1), self.make(depth - 1)
        return tuple[first, second], lambda: (make_first(), make_second())

    def row(self, depth: int) -> tuple[Any, Any]:
        item, value = self.make(depth - 1)
        return tuple[item, ...], lambda: tuple(value() for _ in range(self.random.randint(0, 3)))

    def mapping(self, depth: int) -> tuple[Any, Any]:
        item, value = self.make(depth - 1)
        return self.random.choice([dict, Mapping])[str, item], lambda: {
            f"k{i}": value() for i in range(self.random.randint(0, 3))
        }

    def data(self, depth: int) -> tuple[Any, Any]:
        self.count += 1
        made = [self.make(depth - 1) for _ in range(self.random.randint(0, 3))]
        cls = dataclasses.make_dataclass(f"Data{self.count}", [(f"f{i}", hint) for i, (hint, _) in enumerate(made)])
        return cls, lambda: cls(*(value() for _, value in made))

    def typed(self, depth: int) -> tuple[Any, Any]:
        self.count += 1
        made = [self.make(depth - 1) for _ in range(self.random.randint(0, 3))]
        total = self.random.random() < 0.5
        members = {f"f{i}": hint for i, (hint, _) in enumerate(made)}
        cls = TypedDict(f"Typed{self.count}", members, total=total)  # type: ignore[misc]
        return cls, lambda: {
            f"f{i}": value() for i, (_, value) in enumerate(made) if total or self.random.random() < 0.7
        }

    def optional(self, depth: int) -> tuple[Any, Any]:
        hint, value = self.make(depth - 1)
        return Optional[hint], lambda: None if self.random.random() < 0.3 else value()

    def union(self, depth: int) -> tuple[Any, Any]:
        # Values of different kinds, so that each has one type.
        made = self.random.sample(
            [self.text(0), self.boolean(0), self.array(depth - 1 or 1), self.mapping(depth - 1 or 1)], 2
        )
        return Union[made[0][0], made[1][0]], lambda: self.random.choice(made)[1]()

    def spoil(self, value: Any) -> Any:
        """spoil changes one place of a JSON value."""
        r = self.random
        if isinstance(value, dict) and value and r.random() < 0.7:
            key = r.choice(sorted(value))
            return r.choice(
                [
                    {**value, key: self.spoil(value[key])},
                    {k: v for k, v in value.items() if k != key},
                    {**value, "more": 1},
                ]
            )
        if isinstance(value, list) and value and r.random() < 0.7:
            i = r.randrange(len(value))
            return r.choice([[*value[:i], self.spoil(value[i]), *value[i + 1 :]], value[1:], value + value[:1]])
        return r.choice([None, True, 0, 1, 1.0, 2.5, -7, "", "a", "red", "abcd", [], [1], {}, {"a": 1}, 10**30])


class TestSchemas(unittest.TestCase):
    def test_random_types_load_what_their_schemas_accept(self) -> None:
        loaded = refused = 0
        for seed in range(600):
            types = Types(seed)
            hint, make = types.make(3)
            with self.subTest(seed=seed, hint=str(hint)):
                made = codec(hint)
                jsonschema.Draft202012Validator.check_schema(made.schema)
                validator = jsonschema.Draft202012Validator(made.schema)
                output = jsonschema.Draft202012Validator(codec(hint, output=True).schema)
                for _ in range(5):
                    value = make()
                    text = to_json(value)
                    validator.validate(text)
                    output.validate(text)
                    self.assertEqual(made.load(text), value)
                    spoiled = types.spoil(text)
                    if validator.is_valid(spoiled):
                        made.load(spoiled)
                        loaded += 1
                    else:
                        with self.assertRaises(Misfit):
                            made.load(spoiled)
                        refused += 1
        # Both halves of the comparison were made.
        self.assertGreater(loaded, 200)
        self.assertGreater(refused, 1000)

    def test_types_have_these_schemas(self) -> None:
        for hint, want in [
            (bool, {"type": "boolean"}),
            (int, {"type": "integer"}),
            (float, {"type": "number"}),
            (str, {"type": "string"}),
            (None, {"type": "null"}),
            (Any, {}),
            (UserID, {"type": "string"}),
            (list[int], {"type": "array", "items": {"type": "integer"}}),
            (list, {"type": "array"}),
            (dict, {"type": "object"}),
            (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
            (
                dict[Color, int],
                {
                    "type": "object",
                    "additionalProperties": {"type": "integer"},
                    "propertyNames": {"enum": ["red", "blue"]},
                },
            ),
            (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
            (
                tuple[int, str],
                {
                    "type": "array",
                    "prefixItems": [{"type": "integer"}, {"type": "string"}],
                    "minItems": 2,
                    "maxItems": 2,
                },
            ),
            (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
            (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
            (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
            (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
            (Literal["a", 1], {"enum": ["a", 1]}),
            (Color, {"type": "string", "enum": ["red", "blue"]}),
            (Level, {"type": "integer", "enum": [1, 2]}),
            (bytes, {"type": "string", "contentEncoding": "base64"}),
            (datetime.datetime, {"type": "string", "format": "date-time"}),
            (datetime.date, {"type": "string", "format": "date"}),
            (uuid.UUID, {"type": "string", "format": "uuid"}),
            (Annotated[int, "How many."], {"type": "integer", "description": "How many."}),
            (Annotated[int, Field("How many.", ge=1)], {"type": "integer", "minimum": 1, "description": "How many."}),
            (Annotated[list[int], Field(min_length=1)], {"type": "array", "items": {"type": "integer"}, "minItems": 1}),
            (
                Item,
                {
                    "description": "An item of an order.",
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "description": "What it is."},
                        "count": {"type": "integer", "default": 1},
                        "tags": {"type": "array", "items": {"type": "string"}, "default": []},
                        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
                    },
                    "required": ["name"],
                    "additionalProperties": False,
                },
            ),
            (
                Tree,
                {
                    "$ref": "#/$defs/Tree",
                    "$defs": {
                        "Tree": {
                            "type": "object",
                            "properties": {
                                "value": {"type": "integer"},
                                "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}, "default": []},
                            },
                            "required": ["value"],
                            "additionalProperties": False,
                        }
                    },
                },
            ),
        ]:
            with self.subTest(hint=str(hint)):
                self.assertEqual(codec(hint).schema, want)

    def test_a_postponed_not_required_member_may_be_missing(self) -> None:
        if hasattr(typing, "NotRequired"):
            self.assertEqual(codec(Place).schema["required"], ["city"])
            self.assertEqual(codec(Place).load({"city": "Ulm"}), {"city": "Ulm"})

    def test_texts_become_values_and_texts_again(self) -> None:
        for hint, text, value in [
            (
                datetime.datetime,
                "2026-01-31T12:00:00+00:00",
                datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.timezone.utc),
            ),
            (datetime.date, "2026-01-31", datetime.date(2026, 1, 31)),
            (datetime.time, "12:30:00", datetime.time(12, 30)),
            (uuid.UUID, "6ba7b810-9dad-11d1-80b4-00c04fd430c8", uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")),
            (decimal.Decimal, "12.50", decimal.Decimal("12.50")),
            (bytes, base64.b64encode(b"\x00\xff").decode(), b"\x00\xff"),
        ]:
            with self.subTest(hint=str(hint)):
                self.assertEqual(codec(hint).load(text), value)
                self.assertEqual(to_json(value), text)
                for wrong in ("", "x", 1, None, "2026-13-45", "NaN"):
                    with self.assertRaises(Misfit):
                        codec(hint).load(wrong if wrong != "" or hint is not bytes else "*")
        self.assertEqual(codec(datetime.datetime).load("2026-01-31T12:00:00Z").tzinfo, datetime.timezone.utc)

    def test_every_problem_has_its_place(self) -> None:
        with self.assertRaises(Misfit) as caught:
            codec(list[Item]).load([{"name": "a"}, {"count": "x", "more": 1, "tags": ["a", 2]}])
        self.assertEqual(
            caught.exception.problems,
            [
                "/1/name: it is missing",
                "/1/more: there is no such member; the members are name, count, tags, note",
                "/1/count: it is the string 'x', and must be an integer",
                "/1/tags/1: it is the number 2, and must be a string",
            ],
        )

    def test_a_misfit_is_short(self) -> None:
        with self.assertRaises(Misfit) as caught:
            codec(list[int]).load(["x" * 10_000] * 10_000)
        self.assertLess(len(str(caught.exception)), 4000)
        self.assertIn("and 9980 more", str(caught.exception))

    def test_a_dataclass_may_check_itself(self) -> None:
        with self.assertRaisesRegex(Misfit, "^/0: the end is before the start$"):
            codec(list[Span]).load([{"start": 2, "end": 1}])

    def test_a_recursive_type_loads(self) -> None:
        text = {"value": 1, "children": [{"value": 2, "children": []}]}
        self.assertEqual(codec(Tree).load(text), Tree(1, [Tree(2)]))
        self.assertEqual(to_json(Tree(1, [Tree(2)])), text)

    def test_a_pydantic_model_loads_and_keeps_its_schema_valid_inside_others(self) -> None:
        made: Codec = codec(dict[str, Person])
        jsonschema.Draft202012Validator.check_schema(made.schema)
        jsonschema.Draft202012Validator(made.schema).validate(
            {"a": {"name": "Ada", "age": 36, "friends": [{"name": "B", "age": 1}]}}
        )
        self.assertFalse(
            jsonschema.Draft202012Validator(made.schema).is_valid({"a": {"name": "Ada", "friends": [{"name": "B"}]}})
        )
        loaded = made.load({"a": {"name": "Ada", "age": 36, "friends": [{"name": "B", "age": 1}]}})
        self.assertEqual(loaded["a"].friends[0].name, "B")
        self.assertEqual(
            to_json(loaded), {"a": {"name": "Ada", "age": 36, "friends": [{"name": "B", "age": 1, "friends": []}]}}
        )
        with self.assertRaisesRegex(Misfit, "^/a/age: .*greater than or equal to 0$"):
            made.load({"a": {"name": "Ada", "age": -1}})

    def test_a_model_with_the_methods_of_pydantic_2_is_used_by_them(self) -> None:
        class Model:
            """Model has the methods of pydantic 2, whichever version is installed."""

            def __init__(self, name: str) -> None:
                self.name = name

            @classmethod
            def model_json_schema(cls, mode: str, ref_template: str) -> dict[str, Any]:
                inner = {"type": "string", "description": mode}
                reference = ref_template.format(model="Name")
                return {"type": "object", "properties": {"name": {"$ref": reference}}, "$defs": {"Name": inner}}

            @classmethod
            def model_validate(cls, value: Any) -> Model:
                if not value["name"]:
                    raise ValueError("the name is empty")
                return cls(value["name"])

            def model_dump(self, mode: str, by_alias: bool) -> dict[str, Any]:
                return {"name": self.name, "dumped": [mode, by_alias]}

        made = codec(list[Model])
        self.assertEqual(made.schema["$defs"], {"Model.Name": {"type": "string", "description": "validation"}})
        self.assertEqual(made.schema["items"]["properties"]["name"], {"$ref": "#/$defs/Model.Name"})
        self.assertEqual(codec(Model, output=True).schema["$defs"]["Model.Name"]["description"], "serialization")
        [loaded] = made.load([{"name": "Ada"}])
        self.assertEqual(to_json(loaded), {"name": "Ada", "dumped": ["json", True]})
        with self.assertRaisesRegex(Misfit, "^/0: the name is empty$"):
            made.load([{"name": ""}])

    def test_types_without_a_schema_are_refused_by_name(self) -> None:
        for hint, text in [
            (complex, "complex"),
            (dict[int, str], "keys"),
            (functools.partial, "partial"),
            (dataclasses.make_dataclass("Bad", [("f", complex)]), "Bad.f: the type complex"),
        ]:
            with self.subTest(hint=str(hint)), self.assertRaisesRegex(Unsupported, text):
                codec(hint)

    def test_values_without_json_are_refused(self) -> None:
        for value in (float("nan"), float("inf"), {1: 2}, object(), [object()], decimal.Decimal("NaN")):
            with self.subTest(value=repr(value)), self.assertRaises(TypeError):
                to_json(value)


if __name__ == "__main__":
    unittest.main()
