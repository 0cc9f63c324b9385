"""Networks that are not ours: by dotted path, from timm, from transformers.

The two libraries are imported when a name asks for them and not before. A name runs the code that
it names, as an import does: take names, like code, from people you trust.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Any, Final

from torch import nn

from leanbayes.errors import ConfigError

FORMS: Final = '"package.module:attribute", "timm:NAME" or "transformers:NAME"'


def is_foreign(name: str) -> bool:
    """Whether a name speaks of a network outside the zoo.

    Example:
        >>> is_foreign("timm:resnet18"), is_foreign("resnet18")
        (True, False)
    """
    return ":" in name


def foreign(name: str) -> Callable[..., nn.Module]:
    """What makes the network of a name with a colon; nothing is built yet.

    Raises:
        ConfigError: There is no such library, module or attribute, or it makes no network.

    Example:
        >>> foreign("torch.nn:Linear")
        <class 'torch.nn.modules.linear.Linear'>
    """
    origin, _, rest = name.partition(":")
    if not origin or not rest:
        raise ConfigError(f"model {name!r} is no path; expected {FORMS}")
    if origin == "timm":
        return _timm(rest)
    if origin == "transformers":
        return partial(_transformers, rest)
    return _attribute(name, origin, rest)


def checked(name: str, made: Any) -> nn.Module:
    """The network that a path gave, or an error that says what it gave instead."""
    if isinstance(made, nn.Module):
        return made
    raise ConfigError(
        f"model {name!r} made {_article(made)}; expected a class or function that gives a "
        "torch.nn.Module"
    )


def _attribute(name: str, module: str, path: str) -> Callable[..., nn.Module]:
    """A class or function of a module; `path` may go through classes by dots."""
    found: Any = _module(name, module)
    for word in path.split("."):
        if not hasattr(found, word):
            near = get_close_matches(word, dir(found), n=3)
            nearest = f"; nearest: {', '.join(near)}" if near else ""
            raise ConfigError(f"model {name!r}: {module} has no attribute {path!r}{nearest}")
        found = getattr(found, word)
    if isinstance(found, nn.Module) or not callable(found):
        # A network is callable too, but calling it would be a forward pass.
        raise ConfigError(
            f"model {name!r} is {_article(found)}; expected a class or function that makes a "
            f"network: write def {path.split('.')[-1]}(): ... around it"
        )
    make: Callable[..., nn.Module] = found
    return make


def _module(name: str, module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, and something that it needs is not
        raise ConfigError(
            f"model {name!r}: no module is called {error.name!r}; expected {FORMS}. Install the "
            "package, or run with PYTHONPATH=. where the file lies beside you"
        ) from None
    except (TypeError, ValueError) as error:  # a relative or empty name
        raise ConfigError(f"model {name!r} is no path: {error}; expected {FORMS}") from None


def _library(package: str, name: str) -> Any:
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ConfigError(
            f"model '{package}:{name}' needs {package}, which is not installed: "
            f"pip install {package}"
        ) from None


def _timm(name: str) -> Callable[..., nn.Module]:
    """`timm.create_model(name)`; weights are fresh unless pretrained=True is among the options."""
    timm = _library("timm", name)
    # Names with a slash or colon are places on a hub, which timm alone can resolve.
    plain = name.partition(".")[0]
    if not set(name) & set("/:") and not timm.is_model(plain):
        near = get_close_matches(plain, timm.list_models(), n=3)
        words = f"; nearest: {', '.join(near)}" if near else ""
        raise ConfigError(f"timm has no model {name!r}{words}. timm.list_models() has all of them")
    return partial(timm.create_model, name)


def _transformers(
    name: str, *, task: str = "SequenceClassification", pretrained: bool = False, **options: Any
) -> nn.Module:
    """A network of transformers.

    Args:
        name: A kind of model ("bert", "vit"), built from its settings alone; or a folder or a name
            of the hub, whose settings transformers reads or fetches.
        task: The head, as transformers names it: "ImageClassification", "TokenClassification".
        pretrained: Take the weights too; a kind of model has none.
        **options: Settings of the model: num_labels, hidden_size, ...
    """
    library = _library("transformers", name)
    auto = getattr(library, f"AutoModelFor{task}", None)
    if auto is None:
        heads = [a.removeprefix("AutoModelFor") for a in dir(library) if a.startswith("AutoModelF")]
        near = get_close_matches(task, heads, n=3)
        raise ConfigError(f"transformers has no head {task!r}; nearest: {', '.join(near or heads)}")
    kind = name in library.CONFIG_MAPPING
    if pretrained and kind:
        raise ConfigError(
            f"{name!r} is a kind of model and has no weights; write pretrained=False, or the name "
            "of a checkpoint"
        )
    try:
        if pretrained:
            return checked(f"transformers:{name}", auto.from_pretrained(name, **options))
        configure = library.AutoConfig.for_model if kind else library.AutoConfig.from_pretrained
        return checked(f"transformers:{name}", auto.from_config(configure(name, **options)))
    except (OSError, ValueError) as error:  # not found, or no such head for this model
        raise ConfigError(f"model 'transformers:{name}': {error}") from error


def _article(value: Any) -> str:
    kind = type(value).__name__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"
