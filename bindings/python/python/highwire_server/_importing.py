"""Finds the application that a command line names."""

import importlib
import inspect
import os
import sys
from collections.abc import Callable


INTERFACES = ("asgi", "wsgi", "rsgi")


def interface_of(app: Callable, interface: str = "auto") -> str:
    """Returns the interface of an application: `"asgi"`, `"wsgi"` or `"rsgi"`. With `"auto"`, looks at how it can be called.

    An application of ASGI takes three parameters. Those of WSGI and RSGI take two; RSGI's is a coroutine function, or has
    `__rsgi__`.
    """
    if interface != "auto":
        if interface not in INTERFACES:
            raise ValueError(f"interface must be 'auto', {', '.join(map(repr, INTERFACES))}, not {interface!r}")
        return interface
    if hasattr(app, "__rsgi__"):
        return "rsgi"
    called = app if inspect.isroutine(app) or inspect.isclass(app) else getattr(app, "__call__")  # noqa: B004
    try:
        parameters = inspect.signature(called).parameters.values()
    except Exception:  # From Python 3.14 on, it evaluates the annotations.
        return "asgi"
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    if len(positional) != 2 or len(required) > 2:
        return "asgi"
    return "rsgi" if inspect.iscoroutinefunction(called) else "wsgi"


class ApplicationNotFound(Exception):
    """The application cannot be imported. The text says why, in one line."""


def import_application(target: str, app_dir: str | None = None, factory: bool = False) -> Callable:
    """Returns the application `MODULE:ATTRIBUTE`, of which the attribute is `app` by default.

    app_dir: the folder that is searched first; the working directory by default.
    factory: the attribute is a function that returns the application.
    """
    module_name, _, attribute = target.partition(":")
    attribute = attribute or "app"
    folder = os.path.abspath(app_dir or ".")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if "/" in module_name or (module_name.endswith(".py") and os.path.isfile(os.path.join(folder, module_name))):
        name = module_name.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise ApplicationNotFound(f"{module_name!r} is the name of a file; give the application as {name}:{attribute}")
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # An import inside the module may have failed, which is another fault.
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise ApplicationNotFound(f"there is no module {module_name!r} in {folder}") from None
        raise
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise ApplicationNotFound(f"the module {module_name!r} has no attribute {attribute!r}") from None
    if factory:
        found = found()
    if not callable(found) and not hasattr(found, "__rsgi__"):
        raise ApplicationNotFound(f"{target!r} is of type {type(found).__name__}, which cannot be called")
    if not hasattr(found, "__rsgi__") and takes_nothing(found):
        what = f"what {target!r} returns" if factory else repr(target)
        hint = "" if factory else "; if it returns the application, use --factory"
        raise ApplicationNotFound(f"{what} takes no arguments, so it is no application{hint}")
    return found


def takes_nothing(app: Callable) -> bool:
    """Returns true if a callable has no positional parameters."""
    try:
        parameters = inspect.signature(app, follow_wrapped=False).parameters.values()
    except Exception:
        return False
    return not any(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL) for p in parameters)
