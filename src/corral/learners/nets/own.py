"""Networks of the user's: `network: module:function` in a config, `PPO(network=...)`.

    def make(observation_space, action_space):
        return encoder                        # or a dict: encoder, actor, critic

    encoder(observation)  -> (rows, width)    tensors in the structure of the space
    actor(features)       -> (rows, outputs)  logits of options or bits, means of a Box
    critic(features)      -> (rows, 1)        or (rows,)

Corral adds the parts that are missing. All are tried at the start, on observations of
the space, so that one that does not fit is refused before anything is trained.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gymnasium import spaces

from corral.engine.tree import by_space
from corral.errors import OptionError
from corral.learners.nets.encoders import split
from corral.learners.torch_import import nn, torch
from corral.rollouts.space_rows import sampled

PARTS = ("encoder", "actor", "critic")
# Rows that networks are tried on.
TRIED_ROWS = 3
DEPEND_ON_BATCH = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)


@dataclass(frozen=True, slots=True)
class OwnNetwork:
    """What makes a user's networks.

    Attributes:
        make: Called by keyword with those of `observation_space` and `action_space`
            that it takes, and with `kwargs`.
        name: What errors call it: the setting and its value.
    """

    make: Callable[..., Any]
    name: str = "network"
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def parts(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        seed: int,
    ) -> dict[str, Any]:
        """Make the modules, with weights from the seed."""
        known = {"observation_space": observation_space, "action_space": action_space}
        given = {
            **{key: known[key] for key in known if self._takes(key)},
            **self.kwargs,
        }
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            with self._explained(f"called with {', '.join(given)}"):
                made = self.make(**given)
        found = self._by_name(made)
        for name, module in found.items():
            self._check_module(name, module)
        return found

    def _takes(self, name: str) -> bool:
        if getattr(self.make, "__init__", None) is nn.Module.__init__:
            return False  # it has (*args, **kwargs) and takes none
        try:
            parameters = inspect.signature(self.make).parameters
        except (TypeError, ValueError):
            return True
        anything = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        return anything or name in parameters

    def _by_name(self, made: Any) -> dict[str, Any]:
        if isinstance(made, (Mapping, nn.ModuleDict)):
            found = dict(made.items())
        else:
            found = {"encoder": made}
        fits = found and all(isinstance(one, nn.Module) for one in found.values())
        if not fits or not set(found) <= set(PARTS):
            shown = sorted(map(str, found)) if isinstance(made, Mapping) else made
            raise OptionError(
                f"{self.name} returned {shown!r:.120}; it must return a torch module "
                "(the encoder), or a dict of modules with the keys encoder, actor, "
                "critic or some of them"
            )
        return found

    def _check_module(self, part: str, module: Any) -> None:
        for name, inner in module.named_modules():
            if isinstance(inner, DEPEND_ON_BATCH):
                raise OptionError(
                    f"{self.name}: its {part} has {type(inner).__name__} ({name}), "
                    "with which a row depends on its batch or on chance; use LayerNorm "
                    "or GroupNorm, or leave it out"
                )

    def check_weights(self, part: str, module: Any) -> None:
        """Refuse weights that are not float32."""
        for name, weight in module.named_parameters():
            if weight.dtype != torch.float32:
                raise OptionError(
                    f"{self.name}: weight {name} of its {part} is {weight.dtype}; "
                    "networks compute in float32: call .float() on the module"
                )

    # What the modules return ----------------------------------------------------------

    def width_of(self, encoder: OwnEncoder, space: spaces.Space[Any]) -> int:
        """Try an encoder on observations; return the width of its features."""
        leaves = sampled_leaves(space)
        said = f"called with {TRIED_ROWS} observations of {space}"
        with self._explained(said, "encoder"), torch.no_grad():
            features = encoder(leaves)
        self._check_shape("encoder", features, (None,), f"{said}, it", "width")
        self.check_weights("encoder", encoder)
        return int(features.shape[1])

    def check_output(self, part: str, module: Any, width: int, outputs: int) -> None:
        """Try an actor or critic on features; refuse outputs of another shape."""
        said = f"called with features of shape {(TRIED_ROWS, width)}"
        with self._explained(said, part), torch.no_grad():
            found = module(torch.zeros(TRIED_ROWS, width))
        if part == "critic" and getattr(found, "shape", None) == (TRIED_ROWS,):
            found = found[:, None]
        self._check_shape(part, found, (outputs,), f"{said}, it", str(outputs))
        self.check_weights(part, module)

    def _check_shape(
        self, part: str, found: Any, wanted: tuple[int | None], said: str, width: str
    ) -> None:
        if not isinstance(found, torch.Tensor):
            raise OptionError(
                f"{self.name}: its {part} returned {type(found).__name__}; {said} must "
                f"return a tensor of shape ({TRIED_ROWS}, {width})"
            )
        shape = tuple(found.shape)
        fits = len(shape) == 2 and shape[0] == TRIED_ROWS and shape[1] > 0
        if not fits or wanted[0] not in (None, shape[1]):
            hint = "; end it with nn.Flatten()" if len(shape) > 2 else ""
            raise OptionError(
                f"{self.name}: its {part} returned shape {shape}; {said} must return "
                f"shape ({TRIED_ROWS}, {width}){hint}"
            )
        if not found.is_floating_point():
            raise OptionError(f"{self.name}: its {part} returned {found.dtype}")

    @contextmanager
    def _explained(self, said: str, part: str = "") -> Iterator[None]:
        """Name the setting in errors that the user's code raises."""
        try:
            yield
        except OptionError:
            raise
        except Exception as error:
            whose = f"{self.name}: its {part}" if part else self.name
            lines = str(error).strip().splitlines() or [""]
            hint = ""
            if "unsigned char" in lines[0] or "Byte" in lines[0]:
                hint = ". Images are bytes: begin with x.float() / 255"
            raise OptionError(
                f"{whose}, {said}, raised {type(error).__name__}: {lines[0]}{hint}"
            ) from error


class OwnEncoder(nn.Module):  # type: ignore[misc]
    """A user's encoder behind the interface of `Encoder`: leaves in, features out."""

    def __init__(self, module: Any, space: spaces.Space[Any]) -> None:
        super().__init__()
        self.module = module
        self._space = space

    def forward(self, leaves: Sequence[Any]) -> Any:
        """Tensors of `(rows, ...)` to `(rows, width)`."""
        narrow = [one.float() if one.dtype == torch.float64 else one for one in leaves]
        return self.module(joined(self._space, iter(narrow)))


def joined(space: spaces.Space[Any], leaves: Iterator[Any]) -> Any:
    """Return leaves in the structure of their space; undoes `split`."""
    return by_space(lambda _: next(leaves), space)


def sampled_leaves(space: spaces.Space[Any]) -> list[Any]:
    """Return tensors of some observations of a space, always the same."""
    batch = sampled(space, TRIED_ROWS)
    return [torch.as_tensor(leaf) for leaf in split(space, batch)]


def own_network(given: OwnNetwork | Callable[..., Any] | None) -> OwnNetwork | None:
    """Return a function or class that makes networks, with a name for errors."""
    if given is None or isinstance(given, OwnNetwork):
        return given
    return OwnNetwork(given, f"network {getattr(given, '__qualname__', given)}")
