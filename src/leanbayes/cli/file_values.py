"""Values of a settings file, read by the types of what they are for.

Problems are collected, one line each that begins with the path of the key, so that a user sees all
of them at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cache, partial, reduce
from inspect import Parameter, signature
from operator import and_, or_
from typing import Any, Literal, get_args, get_origin, get_type_hints

import leanbayes as lb
from leanbayes.errors import LeanBayesError
from leanbayes.methods.base import Method, methods
from leanbayes.schedule import Schedule
from leanbayes.select import Selector
from leanbayes.train.fields import nearest, plain

PARTS = Sequence[tuple[Selector, Method]]  # of lb.Compose
WRONG = object()  # stands for a value with a problem, since None is a value
LAYERS = (
    *("everything", "nothing", "output", "stem", "norms", "linears", "convs", "embeddings"),
    *("attentions", "dropouts", "recurrents"),
)
SCHEDULES: Mapping[str, Callable[..., Schedule]] = {
    "constant": lb.schedule.constant,
    "linear_warmup": lb.schedule.linear_warmup,
    "annealed": lb.schedule.annealed,
    "tempered": lb.schedule.tempered,
}


@dataclass
class Reader:
    """Reads values and notes every problem with the path of its key."""

    problems: list[str] = field(default_factory=list)

    def wrong(self, path: str, words: str) -> Any:
        """Note a problem, in one line; gives WRONG."""
        self.problems.append(" ".join(f"{path}: {words}".split()))
        return WRONG

    def table(self, value: Any, path: str) -> Mapping[str, Any]:
        """A table, empty where there is none."""
        if isinstance(value, Mapping):
            return value
        self.wrong(path, f"expected a table, found {short(value)}")
        return {}

    def keys(self, table: Mapping[str, Any], known: Collection[str], path: str) -> None:
        """Note every key that is unknown, with the nearest one."""
        for key in table:
            if key not in known:
                words = nearest(key, list(known)) if known else "it takes no settings"
                self.wrong(joined(path, key), f"unknown; {words}")

    def named(self, table: Mapping[str, Any], known: Collection[str], path: str) -> Any:
        """The word under `name`, one of those known; any word where none is known."""
        name = table.get("name", WRONG)
        path = joined(path, "name")
        if name is WRONG:
            return self.wrong(path, f"missing; expected {_words(known)}")
        if not isinstance(name, str) or not name:
            return self.wrong(path, f"expected a word, found {short(name)}")
        if known and name not in known:
            return self.wrong(path, f"no such name as {short(name)}; {nearest(name, known)}")
        return name

    def build(self, make: Callable[..., Any], value: Any, path: str) -> Any:
        """What a class or function makes of a table."""
        given = self.arguments(make, value, path)
        return WRONG if given is WRONG else self._made(make, given, path)

    def changed(self, base: Any, value: Any, path: str) -> Any:
        """A dataclass with the values of a table in the place of its own."""
        given = self.arguments(type(base), value, path)
        if given is WRONG:
            return WRONG
        if "where" in given and hasattr(base, "select"):  # or the old place would be kept
            given.setdefault("select", lb.select.everything)
        return self._made(partial(replace, base), given, path)

    def _made(self, make: Callable[..., Any], given: Mapping[str, Any], path: str) -> Any:
        try:
            return make(**given)
        except (LeanBayesError, ArithmeticError, TypeError, ValueError) as error:
            key = _key_in(str(error), make, given)
            return self.wrong(joined(path, key) if key else path, str(error))

    def arguments(
        self, make: Callable[..., Any], value: Any, path: str, later: Collection[str] = ()
    ) -> Any:
        """The table's values as arguments of a class or function; nothing is called.

        Those named in `later` may be missing, since the data will tell them.
        """
        before = len(self.problems)
        table, hints = self.table(value, path), _hints(make)
        taken = _parameters(make)
        self.keys(table, list(taken), path)
        for name, parameter in taken.items():
            if parameter.default is Parameter.empty and name not in (*table, *later):
                self.wrong(joined(path, name), "missing; it has no default")
        known = {key: item for key, item in table.items() if key in taken}
        given = {
            key: self.value(item, hints.get(key, Any), joined(path, key))
            for key, item in known.items()
        }
        return given if len(self.problems) == before else WRONG

    def value(self, value: Any, hint: Any, path: str) -> Any:
        """A value of this type."""
        options = get_args(hint) or (hint,)
        if hint == PARTS:
            return self.parts(value, path)
        if Selector in options:
            words = [word for o in options if get_origin(o) is Literal for word in get_args(o)]
            return value if value in words else self.selector(value, path)
        if Schedule in options and not (float in options and isinstance(value, int | float)):
            return self.schedule(value, path)
        if Schedule in options:
            return self.plain_value(value, float, path)
        for option in options:
            if isinstance(option, type) and is_dataclass(option):
                return self.build(option, value, path)
        return self.plain_value(value, hint, path)

    def plain_value(self, value: Any, hint: Any, path: str) -> Any:
        """Numbers, words and lists of them, by pydantic."""
        from pydantic import ValidationError

        try:
            # As JSON, where a list is a tuple too and nothing else becomes something else.
            text = json.dumps(plain(path.rsplit(".", 1)[-1], value))
            return _adapter(hint).validate_json(text, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = "".join(f"[{at}]" for at in first["loc"] if isinstance(at, int))
            words = first["msg"][:1].lower() + first["msg"][1:]
            return self.wrong(path + place, f"{words}, found {short(value)}")
        except (LeanBayesError, ValueError) as error:
            return self.wrong(path, str(error))

    def selector(self, value: Any, path: str) -> Any:
        """Layers: "norms", "norms+output", { name = ["layer4.*"] }, { not = "norms" }."""
        if isinstance(value, str):
            names = [name.strip() for name in value.split("+")]
            for name in names:
                if name not in LAYERS:
                    words = f"no layers are called {short(name)}; {nearest(name, LAYERS)}"
                    return self.wrong(path, words)
            return reduce(or_, [getattr(lb.select, name) for name in names])
        if not isinstance(value, Mapping) or len(value) != 1:
            form = "a word such as 'norms+output', or one of { name = [...] }, { type = [...] }"
            return self.wrong(path, f"expected {form}, {{ not = ... }}; found {short(value)}")
        return self._combined(*next(iter(value.items())), path)

    def _combined(self, rule: str, value: Any, path: str) -> Any:
        path = joined(path, rule)
        rules = ("name", "type", "not", "and", "or")
        if rule not in rules:
            return self.wrong(path, f"unknown; {nearest(rule, rules)}")
        if rule in ("name", "type"):
            words = self.plain_value(value, tuple[str, ...], path)
            make = lb.select.by_name if rule == "name" else lb.select.by_type
            return WRONG if words is WRONG else make(*words)
        many = value if isinstance(value, list) else [value]
        if not many or (rule == "not" and len(many) != 1):
            return self.wrong(path, f"expected layers, found {short(value)}")
        found = [self.selector(item, f"{path}[{at}]") for at, item in enumerate(many)]
        if any(item is WRONG for item in found):
            return WRONG
        return ~found[0] if rule == "not" else reduce(and_ if rule == "and" else or_, found)

    def schedule(self, value: Any, path: str) -> Any:
        """A schedule of the KL: { name = "linear_warmup", steps = 1000 }."""
        table = self.table(value, path)
        name: Any = self.named(table, SCHEDULES, path) if isinstance(value, Mapping) else WRONG
        if name is WRONG:
            return WRONG
        rest = {key: item for key, item in table.items() if key != "name"}
        return self.build(SCHEDULES[name], rest, path)

    def parts(self, value: Any, path: str) -> Any:
        """Parts of a composition: { select = "norms", name = "patching", fields = {} }."""
        if not isinstance(value, list):
            return self.wrong(path, f"expected a list of tables, found {short(value)}")
        found = []
        for at, item in enumerate(value):
            place = f"{path}[{at}]"
            table = self.table(item, place)
            self.keys(table, ("select", "name", "fields"), place)
            select = self.selector(table.get("select"), joined(place, "select"))
            found.append((select, self.method(table, place)))
        return WRONG if any(WRONG in pair for pair in found) else found

    def method(self, table: Mapping[str, Any], path: str) -> Any:
        """A method by name, with its fields."""
        known = methods()
        name = self.named(table, sorted(known), path)
        if name is WRONG:
            return WRONG
        return self.build(known[name], table.get("fields", {}), joined(path, "fields"))


def joined(path: str, key: str) -> str:
    """The path of a key in a table; keys of odd characters in quotes, as in TOML."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", key):
        key = short(key)
    return f"{path}.{key}" if path else key


def _parameters(make: Callable[..., Any]) -> dict[str, Parameter]:
    if isinstance(make, partial):  # of `replace`: what the dataclass takes
        make = type(make.args[0])
    kinds = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return {k: p for k, p in signature(make).parameters.items() if p.kind not in kinds}


@cache
def _hints(make: Any) -> dict[str, Any]:
    if isinstance(make, type) and not is_dataclass(make):
        return get_type_hints(make.__init__)  # type: ignore[misc]
    return get_type_hints(make)


@cache
def _adapter(hint: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(hint, config=ConfigDict(allow_inf_nan=False))


def _key_in(message: str, make: Callable[..., Any], given: Collection[str]) -> str:
    """The first argument that a message speaks of, of those given if it can be."""
    words = re.findall(r"\w+", message)
    known = _parameters(make)
    spoken = [word for word in words if word in given] or [word for word in words if word in known]
    return spoken[0] if spoken else ""


def _words(known: Collection[str]) -> str:
    return f"one of {', '.join(map(repr, known))}" if known else "a word"


def short(value: Any) -> str:
    """The value in at most 60 characters."""
    try:
        text = repr(value)
    except ValueError:  # thousands of digits
        return "a huge number"
    return text if len(text) <= 60 else f"{text[:57]}..."
