"""A state that is offered to the modules of a model: each takes what is its own, and says what it lacks.

PyTorch's programs override `_load_from_state_dict`. An override may rename keys first, leave out the module's own part,
and change the lists of missing and unexpected keys. So what is taken and reported is what the overrides let through.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

EXTRA = "_extra_state"


class Offer:
    """What the modules have taken, and their lists.

    taken       key -> value, to be copied
    missing     keys of theirs that the state lacks; unexpected: keys that none of them takes
    errors      what else overrides say against the state
    """

    def __init__(self, places: Iterable[tuple[str, Any]], own: Iterable[str]) -> None:
        self.places = list(places)  # prefix, module; a module stands before those below it
        self.taken: dict[str, Any] = {}
        self.missing, self.unexpected, self.errors = Lines(self), Lines(self), Lines(self)
        self._prefixes = {prefix for prefix, _ in self.places}
        self._own: dict[str, list[str]] = {}
        for key in own:
            self._own.setdefault(self._prefix(key), []).append(key)

    def show(self, state: Mapping[str, Any]) -> None:
        """Show each module the part of the state that is below it, parents first; the state itself stays as it is."""
        parts = {"": Part(self, state)}
        for prefix, place in self.places:
            part = parts.pop(prefix, None) or Part(self)
            place._load_from_state_dict(part, prefix, {}, True, self.missing, self.unexpected, self.errors)
            for key, value in part.items():
                head, dot, _ = key[len(prefix) :].partition(".") if isinstance(key, str) else ("", "", "")
                if dot and key.startswith(prefix):
                    parts.setdefault(f"{prefix}{head}.", Part(self))[key] = value

    def part(self, place: Any, state: Mapping[str, Any], prefix: str) -> tuple[list[str], list[str]]:
        """Take this module's own keys; (missing, unexpected)."""
        own = self._own.get(prefix, [])
        extra = [prefix + EXTRA] if place._has_extra_state() else []
        self.taken.update({key: state[key] for key in (*own, *extra) if key in state})
        optional = {prefix + name for name in place._optional_keys}
        known = {*own, *extra, *(prefix + name for name in place.ignored_keys)}
        more = [key for key in state if key not in known and self._prefix(key) == prefix]
        return [key for key in own if key not in state and key not in optional], more

    def _prefix(self, key: Any) -> str:
        """The longest prefix of a module that the key begins with."""
        head = key if isinstance(key, str) else ""
        while head:
            head = head.rstrip(".").rpartition(".")[0]
            head = head and f"{head}."
            if head in self._prefixes:
                return head
        return ""


class Part(dict[str, Any]):
    """What a module is shown of the state. It knows the offer, and so do the lists: an override may pass on others."""

    def __init__(self, offer: Offer, state: Mapping[str, Any] | None = None) -> None:
        super().__init__(state or {})
        self.offer = offer


class Lines(list[str]):
    """One of the lists that a module may add to."""

    def __init__(self, offer: Offer) -> None:
        super().__init__()
        self.offer = offer


def take(
    place: Any,
    state: Mapping[str, Any],
    prefix: str,
    strict: bool,
    missing: list[str],
    unexpected: list[str],
    errors: list[str],
) -> None:
    """`Module._load_from_state_dict`: take what is the module's own, and add to the lists unless strict is False."""
    given = (state, missing, unexpected, errors)
    offer = next((one.offer for one in given if isinstance(one, Part | Lines)), None)
    if offer is None:
        raise TypeError(
            f"_load_from_state_dict of {type(place).__name__}: neither the state nor a list is what load_state_dict "
            "passes; expected at least one of them. To load a module, call load_state_dict"
        )
    lacking, more = offer.part(place, state, prefix)
    if strict:
        missing += lacking
        unexpected += more
