"""JSON Schemas of type hints, and values of these types from JSON and back.

| type | JSON |
|---|---|
| `bool`, `int`, `float`, `str`, `None`, `Any` | as named; a float may be an integer |
| `list[T]`, `Sequence[T]`, `set[T]`, `tuple[A, B]`, `tuple[T, ...]` | an array |
| `dict[str, T]`, `Mapping[str, T]` | an object |
| a dataclass, a `TypedDict`, a pydantic model | an object without further members |
| `Optional[T]`, `A \\| B`, `Literal[...]`, an `Enum` | any of them |
| `datetime`, `date`, `time`, `UUID`, `Decimal`, `bytes` | a string: RFC 3339, digits, base64 |
| `Annotated[T, "description"]`, `Annotated[T, Field(ge=1)]` | T, described or limited |
"""

from __future__ import annotations

import base64
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import json
import math
import re
import sys
import types
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

__all__ = ["Codec", "Field", "Misfit", "Unsupported", "codec", "to_json"]

Schema = dict[str, Any]
Loader = Callable[[Any, str], Any]

MAX_PROBLEMS = 20
"""How many problems a Misfit lists."""


class Misfit(ValueError):
    """Misfit is a value that does not fit its type. Each problem begins with a JSON pointer."""

    def __init__(self, problems: Sequence[str]) -> None:
        shown = list(problems[:MAX_PROBLEMS])
        if len(problems) > MAX_PROBLEMS:
            shown.append(f"and {len(problems) - MAX_PROBLEMS} more")
        super().__init__("; ".join(shown))
        self.problems = list(problems)


class Unsupported(TypeError):
    """Unsupported is a type without a JSON Schema."""


@dataclasses.dataclass(frozen=True)
class Field:
    """Field describes and limits a value: `Annotated[int, Field("How many.", ge=1)]`. pattern is a regular expression
    that is found anywhere in the text. The limits of length are those of texts, and of the items of lists."""

    description: str | None = None
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    format: str | None = None
    title: str | None = None
    examples: Sequence[Any] | None = None


@dataclasses.dataclass(frozen=True)
class Codec:
    """Codec is the JSON Schema of a type, and the conversion of its values from JSON. `load` raises Misfit."""

    schema: Schema
    load: Callable[[Any], Any]


def codec(
    hint: Any, *, local_names: Mapping[str, Any] | None = None, output: bool = False, lenient: bool = False
) -> Codec:
    """codec returns the codec of a type, or of a JSON Schema given as a dict, which converts nothing. output: the
    schema of what `to_json` makes of a value, where no member is missing. lenient: unknown members of objects are
    ignored."""
    if isinstance(hint, dict):
        return Codec(hint, lambda value: value)
    compiler = _Compiler(local_names or {}, output, lenient)
    schema, load = compiler.compile(hint)
    if compiler.definitions:
        schema = {**schema, "$defs": compiler.definitions}
    return Codec(schema, lambda value: load(value, ""))


def object_codec(members: Mapping[str, tuple[Any, Any]], *, local_names: Mapping[str, Any]) -> Codec:
    """object_codec returns the codec of an object: a type and a default for each member, `MISSING` for none. It loads
    a dict of the given members; a default is not filled in."""
    compiler = _Compiler(local_names, False, False)
    loaders: dict[str, Loader] = {}
    properties: Schema = {}
    required = []
    for name, (hint, default) in members.items():
        try:
            properties[name], loaders[name] = compiler.compile(hint)
        except Unsupported as error:
            raise Unsupported(f"{name}: {error}") from None
        properties[name] = _with_default(properties[name], default)
        if default is MISSING:
            required.append(name)
    schema: Schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    if compiler.definitions:
        schema["$defs"] = compiler.definitions
    load = _object_loader(loaders, required, lenient=False)
    return Codec(schema, lambda value: load(value, ""))


MISSING = dataclasses.MISSING


def to_json(value: Any) -> Any:
    """to_json returns a value as JSON has it. TypeError for a value without JSON."""
    if value is None or isinstance(value, (bool, str)) and not isinstance(value, enum.Enum):
        return value
    if isinstance(value, enum.Enum):
        return to_json(value.value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TypeError(f"{value} has no JSON")
        return float(value)
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return value.model_dump(mode="json", by_alias=True)
    if hasattr(value, "__fields__") and hasattr(value, "parse_obj") and not isinstance(value, type):  # pydantic 1
        return json.loads(value.json(by_alias=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, collections.abc.Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r:.80} of an object is no string")
        return {str(key): to_json(member) for key, member in value.items()}
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, decimal.Decimal):
        if not value.is_finite():
            raise TypeError(f"{value} has no JSON")
        return format(value, "f")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, (set, frozenset)):
        items = [to_json(item) for item in value]
        return sorted(items, key=repr)
    if isinstance(value, collections.abc.Sequence):
        return [to_json(item) for item in value]
    raise TypeError(f"a value of type {type(value).__qualname__} has no JSON")


def _with_default(schema: Schema, default: Any) -> Schema:
    if default is MISSING:
        return schema
    try:
        return {**schema, "default": to_json(default)}
    except TypeError:
        return schema  # such as an object that the function alone knows


def _show(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return f"the string {value[:40]!r}" + ("…" if len(value) > 40 else "")
        case int() | float():
            return f"the number {str(value)[:40]}"
        case list():
            return "an array"
        case dict():
            return "an object"
    return type(value).__name__


def _misfit(path: str, text: str) -> Misfit:
    return Misfit([f"{path or '/'}: {text}"])


def _expected(path: str, what: str, value: Any) -> Misfit:
    return _misfit(path, f"it is {_show(value)}, and must be {what}")


def _below(path: str, name: str | int) -> str:
    return f"{path}/{str(name).replace('~', '~0').replace('/', '~1')}"


def _check(what: str, accepts: Callable[[Any], bool], convert: Callable[[Any], Any] = lambda value: value) -> Loader:
    def load(value: Any, path: str) -> Any:
        if not accepts(value):
            raise _expected(path, what, value)
        return convert(value)

    return load


def _parsed(what: str, parse: Callable[[str], Any]) -> Loader:
    """_parsed loads a type whose values are texts in JSON."""

    def load(value: Any, path: str) -> Any:
        if not isinstance(value, str):
            raise _expected(path, what, value)
        try:
            return parse(value)
        except (ValueError, ArithmeticError):
            raise _expected(path, what, value) from None

    return load


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) or isinstance(value, float) and value.is_integer()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(sys.float_info.max, value)


def _parse_time(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    # fromisoformat of Python 3.10 knows no Z.
    return lambda text: parse(text[:-1] + "+00:00" if text[-1:] in ("Z", "z") else text)


_DECIMAL = r"^-?[0-9]+(\.[0-9]+)?$"


def _parse_decimal(text: str) -> decimal.Decimal:
    if not re.search(_DECIMAL, text):
        raise ValueError
    return decimal.Decimal(text)


_SCALARS: dict[Any, tuple[Schema, Loader]] = {
    Any: ({}, lambda value, path: value),
    object: ({}, lambda value, path: value),
    None: ({"type": "null"}, _check("null", lambda value: value is None)),
    type(None): ({"type": "null"}, _check("null", lambda value: value is None)),
    bool: ({"type": "boolean"}, _check("true or false", lambda value: isinstance(value, bool))),
    int: ({"type": "integer"}, _check("an integer", _is_integer, int)),
    float: ({"type": "number"}, _check("a number", _is_number, _float)),
    str: ({"type": "string"}, _check("a string", lambda value: isinstance(value, str))),
    bytes: (
        {"type": "string", "contentEncoding": "base64"},
        _parsed("a base64 string", lambda text: base64.b64decode(text, validate=True)),
    ),
    datetime.datetime: (
        {"type": "string", "format": "date-time"},
        _parsed("a time such as 2026-01-31T12:00:00Z", _parse_time(datetime.datetime.fromisoformat)),
    ),
    datetime.date: (
        {"type": "string", "format": "date"},
        _parsed("a date such as 2026-01-31", datetime.date.fromisoformat),
    ),
    datetime.time: (
        {"type": "string", "format": "time"},
        _parsed("a time such as 12:00:00", _parse_time(datetime.time.fromisoformat)),
    ),
    uuid.UUID: ({"type": "string", "format": "uuid"}, _parsed("a UUID", uuid.UUID)),
    decimal.Decimal: (
        {"type": "string", "pattern": _DECIMAL},
        _parsed("a string with a decimal number", _parse_decimal),
    ),
    dict: ({"type": "object"}, _check("an object", lambda value: isinstance(value, dict))),
    list: ({"type": "array"}, _check("an array", lambda value: isinstance(value, list))),
}

_LISTS = (
    list,
    collections.abc.Sequence,
    collections.abc.Iterable,
    collections.abc.Collection,
    collections.abc.MutableSequence,
)
_SETS = (set, frozenset, collections.abc.Set, collections.abc.MutableSet)
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


class _Compiler:
    """_Compiler compiles the types of one schema."""

    def __init__(self, local_names: Mapping[str, Any], output: bool, lenient: bool) -> None:
        self.local_names = dict(local_names)
        self.output = output
        self.lenient = lenient
        self.definitions: Schema = {}  # schemas of types that contain themselves, by name
        self.open: dict[Any, dict[str, Any]] = {}  # the types around the current one

    def compile(self, hint: Any) -> tuple[Schema, Loader]:
        try:
            if hint in _SCALARS:
                schema, load = _SCALARS[hint]
                return dict(schema), load
        except TypeError:
            pass  # a hint that cannot be a key, such as Annotated with a list
        origin, arguments = get_origin(hint), get_args(hint)
        name = getattr(origin, "__name__", "") or getattr(origin, "_name", "") or ""
        if hasattr(hint, "__metadata__"):
            return self.annotated(hint)
        if isinstance(hint, str):
            raise Unsupported(f"the type {hint!r} cannot be resolved: define it at the top of its module")
        if name in ("Required", "NotRequired", "ReadOnly", "Final", "ClassVar"):
            return self.compile(arguments[0])
        if isinstance(hint, typing.NewType):
            return self.compile(hint.__supertype__)
        if hasattr(hint, "__value__") and not isinstance(hint, type):
            return self.compile(hint.__value__)  # type X = ...
        if origin is Literal:
            return self.choice(arguments)
        if origin is Union or isinstance(hint, types.UnionType):
            return self.union(arguments)
        if origin in _LISTS or hint in _LISTS:
            return self.array(arguments[0] if arguments else Any)
        if origin in _SETS or hint in _SETS:
            return self.array(arguments[0] if arguments else Any, frozenset if origin is frozenset else set)
        if origin is tuple or hint is tuple:
            return self.fixed(arguments)
        if origin in _MAPPINGS or hint in _MAPPINGS:
            return self.mapping(*(arguments or (str, Any)))
        if isinstance(hint, type):
            if issubclass(hint, enum.Enum):
                return self.choice(list(hint))
            if hasattr(hint, "model_validate") or hasattr(hint, "__fields__") and hasattr(hint, "parse_obj"):
                return self.pydantic(hint)
            if dataclasses.is_dataclass(hint):
                return self.named(hint, self.dataclass)
            if typing.is_typeddict(hint):
                return self.named(hint, self.typed_dict)
        raise Unsupported(
            f"the type {getattr(hint, '__qualname__', hint)} has no JSON Schema: use a dataclass, a TypedDict, "
            "a pydantic model, or one of the types that the documentation lists"
        )

    def annotated(self, hint: Any) -> tuple[Schema, Loader]:
        schema, load = self.compile(hint.__origin__)
        for note in hint.__metadata__:
            if isinstance(note, str):
                schema = {**schema, "description": note}
            elif isinstance(note, Field):
                schema, load = _limited(schema, load, note)
            elif isinstance(getattr(note, "description", None), str):  # such as pydantic's Field
                schema = {**schema, "description": note.description}
        return schema, load

    def choice(self, members: Sequence[Any]) -> tuple[Schema, Loader]:
        values = {_key(to_json(member)): member for member in members}
        texts = [text for _, text in values]
        schema: Schema = {"enum": texts}
        kinds = {
            "number" if kind == "number" and not isinstance(text, int) else "integer" if kind == "number" else kind
            for kind, text in values
        }
        if len(kinds) == 1 and kinds != {"null"}:
            schema = {"type": kinds.pop(), **schema}
        what = "one of " + ", ".join(repr(text) for text in texts)

        def load(value: Any, path: str) -> Any:
            if isinstance(value, (list, dict)) or (key := _key(value)) not in values:
                raise _expected(path, what, value)
            return values[key]

        return schema, load

    def union(self, alternatives: Sequence[Any]) -> tuple[Schema, Loader]:
        compiled = [self.compile(alternative) for alternative in alternatives]

        def load(value: Any, path: str) -> Any:
            problems = []
            for schema, load_alternative in compiled:
                if _excluded(schema, value):
                    continue
                try:
                    return load_alternative(value, path)
                except Misfit as misfit:
                    problems.append(misfit)
            if len(problems) == 1:
                raise problems[0]
            raise _misfit(
                path,
                f"it is {_show(value)}, and fits none of the alternatives"
                + "".join(f" ({problem})" for problem in problems),
            )

        return {"anyOf": [schema for schema, _ in compiled]}, load

    def array(self, item: Any, collect: type[set[Any]] | type[frozenset[Any]] | None = None) -> tuple[Schema, Loader]:
        item_schema, load_item = self.compile(item)
        schema: Schema = {"type": "array", "items": item_schema}
        if collect:
            schema["uniqueItems"] = True

        def load(value: Any, path: str) -> Any:
            if not isinstance(value, list):
                raise _expected(path, "an array", value)
            items = _load_all((load_item, entry, _below(path, i)) for i, entry in enumerate(value))
            if collect is None:
                return items
            collected = collect(items)
            if len(collected) < len(items):
                raise _misfit(path, "it has equal items, and must not")
            return collected

        return schema, load

    def fixed(self, items: Sequence[Any]) -> tuple[Schema, Loader]:
        if not items or len(items) == 2 and items[1] is Ellipsis:
            return self.array(items[0] if items else Any)[0], self._as_tuple(items[0] if items else Any)
        compiled = [self.compile(item) for item in items]

        def load(value: Any, path: str) -> Any:
            if not isinstance(value, list) or len(value) != len(compiled):
                raise _expected(path, f"an array of {len(compiled)} items", value)
            return tuple(_load_all((load_item, value[i], _below(path, i)) for i, (_, load_item) in enumerate(compiled)))

        return {
            "type": "array",
            "prefixItems": [schema for schema, _ in compiled],
            "minItems": len(compiled),
            "maxItems": len(compiled),
        }, load

    def _as_tuple(self, item: Any) -> Loader:
        _, load = self.array(item)
        return lambda value, path: tuple(load(value, path))

    def mapping(self, key: Any, member: Any) -> tuple[Schema, Loader]:
        key_schema, load_key = self.compile(key)
        if key_schema.get("type") != "string":
            raise Unsupported("the keys of a dict must be strings")
        schema, load_member = self.compile(member)

        def load(value: Any, path: str) -> Any:
            if not isinstance(value, dict):
                raise _expected(path, "an object", value)
            members = _load_all((load_member, entry, _below(path, name)) for name, entry in value.items())
            return dict(zip((load_key(name, _below(path, name)) for name in value), members))

        found: Schema = {"type": "object", "additionalProperties": schema}
        if len(key_schema) > 1:
            found["propertyNames"] = {name: text for name, text in key_schema.items() if name != "type"}
        return found, load

    def named(self, hint: Any, compile_members: Callable[[Any], tuple[Schema, Loader]]) -> tuple[Schema, Loader]:
        """named compiles a type with a name, which may contain itself."""
        if hint in self.open:
            entry = self.open[hint]
            if not entry["name"]:
                name, number = hint.__name__, 2
                while name in self.definitions:
                    name, number = f"{hint.__name__}{number}", number + 1
                entry["name"] = name
                self.definitions[name] = {}
            return {"$ref": f"#/$defs/{entry['name']}"}, lambda value, path: entry["load"](value, path)
        entry = {"name": "", "load": None}
        self.open[hint] = entry
        schema, load = compile_members(hint)
        del self.open[hint]
        entry["load"] = load
        if entry["name"]:
            self.definitions[entry["name"]] = schema
            return {"$ref": f"#/$defs/{entry['name']}"}, load
        return schema, load

    def hints(self, cls: Any) -> dict[str, Any]:
        try:
            return typing.get_type_hints(cls, localns=self.local_names, include_extras=True)
        except NameError as error:
            raise Unsupported(f"{cls.__qualname__}: {error}: define the type at the top of its module") from None

    def dataclass(self, cls: Any) -> tuple[Schema, Loader]:
        hints = self.hints(cls)
        properties: Schema = {}
        loaders: dict[str, Loader] = {}
        required = []
        for field in dataclasses.fields(cls):
            if not (field.init or self.output):
                continue
            try:
                schema, loaders[field.name] = self.compile(hints[field.name])
            except Unsupported as error:
                raise Unsupported(f"{cls.__qualname__}.{field.name}: {error}") from None
            if isinstance(about := field.metadata.get("description"), str):
                schema = {**schema, "description": about}
            default = field.default_factory() if field.default_factory is not MISSING else field.default
            properties[field.name] = schema if self.output else _with_default(schema, default)
            if self.output or default is MISSING:
                required.append(field.name)
        load_members = _object_loader(loaders, required, self.lenient)

        def load(value: Any, path: str) -> Any:
            members = load_members(value, path)
            try:
                return cls(**members)
            except (ValueError, TypeError) as error:  # of a __post_init__ that checks the whole
                raise _misfit(path, _reason(error)) from error

        return _object_schema(cls, properties, required), load

    def typed_dict(self, cls: Any) -> tuple[Schema, Loader]:
        hints = self.hints(cls)
        properties: Schema = {}
        loaders: dict[str, Loader] = {}
        required = []
        for name, hint in hints.items():
            try:
                properties[name], loaders[name] = self.compile(hint)
            except Unsupported as error:
                raise Unsupported(f"{cls.__qualname__}.{name}: {error}") from None
            # With postponed annotations __required_keys__ does not know of Required and NotRequired.
            marks = _marks(hint)
            if "Required" in marks or name in cls.__required_keys__ and "NotRequired" not in marks:
                required.append(name)
        return _object_schema(cls, properties, required), _object_loader(loaders, required, self.lenient)

    def pydantic(self, cls: Any) -> tuple[Schema, Loader]:
        prefix = f"{cls.__name__}."
        while any(name.startswith(prefix) for name in self.definitions):
            prefix = "_" + prefix
        template = f"#/$defs/{prefix}{{model}}"
        if hasattr(cls, "model_validate"):
            schema = cls.model_json_schema(mode="serialization" if self.output else "validation", ref_template=template)
            validate, definitions = cls.model_validate, schema.pop("$defs", {})
        else:  # pydantic 1
            schema = json.loads(cls.schema_json(ref_template=template))
            validate, definitions = cls.parse_obj, schema.pop("definitions", {})
        for name, definition in definitions.items():
            self.definitions[prefix + name] = definition

        def load(value: Any, path: str) -> Any:
            try:
                return validate(value)
            except ValueError as error:
                details = error.errors() if hasattr(error, "errors") else []
                if not details:
                    raise _misfit(path, _reason(error)) from error
                places = [
                    "".join(_below("", part) for part in detail["loc"] if part != "__root__") for detail in details
                ]
                raise Misfit(
                    [f"{path + place or '/'}: {detail['msg']}" for place, detail in zip(places, details)]
                ) from error

        return schema, load


def _key(value: Any) -> tuple[str, Any]:
    """_key is equal for equal values of JSON, where 1 is 1.0 and not true."""
    if value is None:
        return "null", None
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, str):
        return "string", value
    if isinstance(value, (int, float)):
        return "number", value
    raise Unsupported(f"{value!r:.80} is neither a text, a number, a boolean nor None")


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _marks(hint: Any) -> set[str]:
    """_marks returns the names around the type of a member: Required, NotRequired, ReadOnly, Annotated."""
    marks = set()
    while (origin := get_origin(hint)) is not None:
        name = getattr(origin, "__name__", "") or getattr(origin, "_name", "") or ""
        if hasattr(hint, "__metadata__"):
            hint = hint.__origin__
        elif name in ("Required", "NotRequired", "ReadOnly"):
            marks.add(name)
            hint = get_args(hint)[0]
        else:
            break
    return marks


def _object_schema(cls: Any, properties: Schema, required: list[str]) -> Schema:
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False
    text = cls.__doc__ or ""
    if text and not text.startswith(f"{cls.__name__}("):  # what dataclass writes by itself
        schema = {"description": " ".join(text.split()), **schema}
    return schema


def _object_loader(loaders: Mapping[str, Loader], required: Sequence[str], lenient: bool) -> Loader:
    def load(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _expected(path, "an object", value)
        problems = [f"{_below(path, name)}: it is missing" for name in required if name not in value]
        if not lenient:
            problems += [
                f"{_below(path, name)}: there is no such member; the members are {', '.join(loaders) or 'none'}"
                for name in value
                if name not in loaders
            ]
        members = {}
        for name, load_member in loaders.items():
            if name in value:
                try:
                    members[name] = load_member(value[name], _below(path, name))
                except Misfit as misfit:
                    problems += misfit.problems
        if problems:
            raise Misfit(problems)
        return members

    return load


def _load_all(entries: collections.abc.Iterable[tuple[Loader, Any, str]]) -> list[Any]:
    loaded, problems = [], []
    for load, value, path in entries:
        try:
            loaded.append(load(value, path))
        except Misfit as misfit:
            problems += misfit.problems
    if problems:
        raise Misfit(problems)
    return loaded


def _excluded(schema: Schema, value: Any) -> bool:
    """_excluded reports whether the type of the schema excludes the value, so that messages only speak of
    alternatives that could be meant."""
    match schema.get("type"):
        case "string":
            return not isinstance(value, str)
        case "integer" | "number":
            return not _is_number(value)
        case "boolean":
            return not isinstance(value, bool)
        case "null":
            return value is not None
        case "array":
            return not isinstance(value, list)
        case "object":
            return not isinstance(value, dict)
    return False


def _limited(schema: Schema, load: Loader, field: Field) -> tuple[Schema, Loader]:
    is_list = schema.get("type") == "array"
    length = "Items" if is_list else "Length"
    unit = "items" if is_list else "characters"
    checks: list[tuple[str, Callable[[Any], Any]]] = []
    added: Schema = {}

    def limit(keyword: str, bound: Any, what: str, holds: Callable[[Any, Any], Any]) -> None:
        if bound is not None:
            added[keyword] = bound
            checks.append((f"{what} {bound}", lambda value: holds(value, bound)))

    limit("minimum", field.ge, "at least", lambda value, bound: value >= bound)
    limit("exclusiveMinimum", field.gt, "above", lambda value, bound: value > bound)
    limit("maximum", field.le, "at most", lambda value, bound: value <= bound)
    limit("exclusiveMaximum", field.lt, "below", lambda value, bound: value < bound)
    limit("multipleOf", field.multiple_of, "a multiple of", lambda value, bound: value % bound == 0)
    limit("min" + length, field.min_length, f"of {unit} at least", lambda value, bound: len(value) >= bound)
    limit("max" + length, field.max_length, f"of {unit} at most", lambda value, bound: len(value) <= bound)
    if field.pattern is not None:
        pattern = re.compile(field.pattern)
        limit("pattern", field.pattern, "a match of", lambda value, bound: pattern.search(value) is not None)
    for keyword, text in (("description", field.description), ("format", field.format), ("title", field.title)):
        if text is not None:
            added[keyword] = text
    if field.examples is not None:
        added["examples"] = to_json(list(field.examples))

    def load_limited(value: Any, path: str) -> Any:
        loaded = load(value, path)
        for what, holds in checks:
            try:
                fits = holds(value)
            except TypeError:
                continue  # JSON Schema limits only values of the type
            if not fits:
                raise _expected(path, what, value)
        return loaded

    return {**schema, **added}, load_limited
