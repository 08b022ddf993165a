"""YAML that a user names: read once, within limits, so that no file hangs the command or means something unseen."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from sweetspot.errors import UserError

LARGEST = 1_000_000  # bytes; an experiment is a few hundred
DEEPEST = 20  # mappings and lists in each other; Trainer's arguments are three deep


class PlainLoader(yaml.SafeLoader):
    """YAML without what a config never needs and an error or an attack uses: aliases, deep nesting, a key twice."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise refused(self.peek_event(), "an alias (*name) is not taken here; write the value out")
        self.depth += 1
        if self.depth > DEEPEST:
            raise refused(self.peek_event(), f"it is nested more than {DEEPEST} deep")
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise refused(key, f"{key.value} stands there twice")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def refused(where: Any, what: str) -> yaml.MarkedYAMLError:
    """The error that says what is wrong at a place."""
    return yaml.MarkedYAMLError(problem=what, problem_mark=where.start_mark)


def read_yaml(flag: str, path: Path) -> Any:
    """What a YAML file says; a UserError names the flag, the file, and the line where there is one."""
    try:
        if not path.exists():
            raise UserError(f"{flag} {path} is not there")
        if not path.is_file():  # reading a pipe would wait for ever
            raise UserError(f"{flag} {path} is no regular file; give a YAML file, such as --print_config prints")
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise UserError(f"{flag} {path} holds more than {LARGEST // 1_000_000} MB, and no config does")
        return yaml.load(content.decode("utf-8"), PlainLoader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{flag} {path}{line}: {error.problem}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{flag} {path} is no text in UTF-8") from error
    except OSError as error:
        raise UserError(f"{flag} {path} cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{flag} {path} is no YAML ({' '.join(str(error).split())})") from error
