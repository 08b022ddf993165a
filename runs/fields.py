"""What the classes behind the flags share: how a field is spelled, its type, whether it is part of a run's name."""

from __future__ import annotations

import types
import typing
from dataclasses import field
from typing import Any

from sweetspot.errors import UserError

FLAG_NAMES = {"lam": "lambda"}  # what Python cannot call a field


def not_identity(default: Any) -> Any:
    """A field that says where or how a run is made, not what it is: two runs that differ only here are the same run."""
    if isinstance(default, dict | list):
        return field(default_factory=lambda: default.copy(), metadata={"identity": False})
    return field(default=default, metadata={"identity": False})


def check_types(config: Any) -> None:
    """Refuse what a YAML file can say and a flag cannot, such as `epochs: null`; whole numbers pass for floats."""
    for name, hint in typing.get_type_hints(type(config)).items():
        flag, value = FLAG_NAMES.get(name, name).replace("_", "-"), getattr(config, name)
        if hint in (float, float | None) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
            setattr(config, name, value)
        allowed = typing.get_args(hint) if isinstance(hint, types.UnionType) else (typing.get_origin(hint) or hint,)
        if not isinstance(value, allowed) or (isinstance(value, bool) and hint is not bool):
            raise UserError(
                f"--{flag} must be {hint if isinstance(hint, types.UnionType) else hint.__name__}; got {value!r}"
            )
