"""A recipe's model as a pure function of its weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import prod
from typing import cast

import numpy as np
import torch
from torch import nn
from torch.func import functional_call

from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError
from edgefed.learn.base.recurrent_state import CarriedState, Recurrent
from edgefed.learn.base.torch_private import BatchNorm, Dropout
from edgefed.learn.base.transfers import download
from edgefed.learn.base.types import Params, Tensors
from edgefed.learn.modeling.model_split import halves
from edgefed.learn.modeling.output_layer import OutputLayer, captured_inputs, find_output_layer
from edgefed.learn.modeling.trained_part import still_layers
from edgefed.learn.networks.base import Shape
from edgefed.process.memory import discard_pages


class Model:
    """A module and the names of its weights.

    Attributes:
        module: the torch module; its own weights are the initial ones until ``free_weights``. One
            thread at a time may call ``forward``, which lends the module other weights for the
            length of the call.
        shape: shape of one input.
        classes: number of logits.
        vocabulary: inputs are numbers of tokens, from 0 and below this; None where they are real
            numbers.
        parameter_names: names of the trained weights, in the order of the module.
        buffer_names: names of the other arrays, such as running statistics and parameters that the
            module excludes from training (``requires_grad`` off).
        names: both, in the order of the module's state; tied weights are named once.
        frozen_names: names of the weights and buffers that are not trained; they are part of the
            module and of no payload; see ``trained_part``.
        all_names: ``names`` and ``frozen_names``, in the order of the module's state.
        section: the recipe's ``[model]`` table that it was built from; None for a module that came
            without one.
        has_batch_norm: whether a sample's result depends on the others of its batch in training,
            which takes two samples at least.
    """

    def __init__(
        self,
        module: nn.Module,
        shape: Shape,
        classes: int,
        vocabulary: int | None = None,
        section: ModelSection | None = None,
        frozen: frozenset[str] = frozenset(),
    ) -> None:
        self.module = module
        self.shape = shape
        self.classes = classes
        self.vocabulary = vocabulary
        self.section = section
        state = module.state_dict()
        wanted = {name: part.requires_grad for name, part in module.named_parameters()}
        kept = {name for name, _ in module.named_buffers()} | wanted.keys()
        self.all_names = tuple(name for name in state if name in kept)
        self.names = tuple(name for name in self.all_names if name not in frozen)
        self.frozen_names = tuple(name for name in self.all_names if name in frozen)
        self.parameter_names = tuple(name for name in self.names if wanted.get(name))
        self.buffer_names = tuple(name for name in self.names if not wanted.get(name))
        self._still = still_layers(module, frozen) if frozen else ()
        self._frozen_arrays: Tensors | None = None
        for name, part in module.named_parameters():
            part.requires_grad_(part.requires_grad and name not in frozen)
        self.has_batch_norm = not self.trains_head_only and any(
            isinstance(part, BatchNorm) and part not in self._still for part in module.modules()
        )
        self._rebuilt: Callable[[], Model] | None = None
        self._halves: dict[int, tuple[Model, Model]] = {}

    @property
    def trains_head_only(self) -> bool:
        """Whether all but the output layer is frozen, and always in evaluation mode."""
        return self.section is not None and self.section.train == "head"

    def training_mode(self) -> None:
        """Put the module into training mode, but for layers that are frozen."""
        self.module.train(not self.trains_head_only)
        for layer in self._still:
            layer.eval()

    def frozen_weights(self) -> Tensors:
        """Return the frozen arrays, by name; the very same ones at each call."""
        if self._frozen_arrays is None:
            state = self.module.state_dict()
            self._frozen_arrays = {
                name: np.array(download(state[name], "model").numpy(), order="C")
                for name in self.frozen_names
            }
        return self._frozen_arrays

    def put_frozen(self, arrays: Tensors) -> None:
        """Copy frozen arrays into the module.

        Raises:
            DataError: ``model.weights``: they are another model's.
        """
        self._check(arrays, self.frozen_names)
        self._put(arrays)
        self._frozen_arrays = None

    def put_weights(self, weights: Tensors) -> None:
        """Copy all arrays, trained and frozen, into the module.

        Raises:
            DataError: ``model.weights``: they are another model's.
        """
        self._check(weights, self.all_names)
        self._put(weights)
        self._frozen_arrays = None

    def _put(self, arrays: Tensors) -> None:
        state = self.module.state_dict()
        for name, array in arrays.items():
            state[name].copy_(torch.from_numpy(np.array(array)))

    def complete(self, weights: Tensors) -> Tensors:
        """Return trained weights together with the frozen ones, in the module's order.

        Arrays that are no weights of this model, such as a table of experts, stay as they are.
        """
        if not self.frozen_names or weights.keys() != set(self.names):
            return weights
        both = {**self.frozen_weights(), **weights}
        return {name: both[name] for name in self.all_names}

    def without_frozen(self, arrays: Tensors) -> Tensors:
        """Return the trained weights among the arrays that ``complete`` returned."""
        if arrays.keys() != set(self.all_names):
            return arrays
        return {name: arrays[name] for name in self.names}

    @property
    def weight_bytes(self) -> int:
        """How many bytes the module's own weights and buffers take."""
        return module_bytes(self.module)

    @property
    def trained_bytes(self) -> int:
        """How many bytes the arrays of ``names`` take."""
        state = self.module.state_dict()
        return sum(state[name].numel() * state[name].element_size() for name in self.names)

    @property
    def float_kind(self) -> type[np.generic]:
        """The kind of number that the module computes in: float32, unless it was converted."""
        wide = any(part.dtype == torch.float64 for part in self.module.parameters())
        return np.float64 if wide else np.float32

    @property
    def float_dtype(self) -> torch.dtype:
        """The kind of number that the module computes in, as torch names it."""
        return torch.float64 if self.float_kind is np.float64 else torch.float32

    @property
    def input_kind(self) -> type[np.generic]:
        """The kind of number that an input is made of."""
        return self.float_kind if self.vocabulary is None else np.int64

    def forward(self, params: Params, inputs: torch.Tensor) -> torch.Tensor:
        """Return the logits (batch, classes) under ``params``, which may hold others' weights too.

        The module's mode (training or not) holds; in training, normalisation layers write their
        running statistics into the buffers among ``params``.
        """
        own = {name: params[name] for name in self.names if name in params}
        return cast(torch.Tensor, functional_call(self.module, own, (inputs,)))

    def why_not_carry(self) -> str:
        """Return why no recurrent state can be carried from batch to batch, or nothing."""
        if not isinstance(self.module, Recurrent):
            return "the model has none"
        if self.has_batch_norm:
            return "batch normalisation adds a sample that is left over to the batch before"
        return ""

    def carrying_state(self) -> CarriedState:
        """Return a forward pass that carries the state of the module from call to call."""
        return CarriedState(self.module, self.names)

    def forward_with_features(
        self, params: Params, inputs: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the logits (batch, classes) and the features (batch, width) in one pass.

        The features are the inputs of the output layer; see ``output_layer``.

        Raises:
            DataError: ``model.features``: the model has no such layer.
        """
        with captured_inputs(self.output_layer.module) as taken:
            logits = self.forward(params, inputs)
        return logits, taken[-1]

    @cached_property
    def output_layer(self) -> OutputLayer:
        """The linear layer whose output is the model's.

        Raises:
            DataError: ``model.features``: there is none.
        """
        return find_output_layer(self.module, self.probe_inputs())

    @cached_property
    def is_samplewise(self) -> bool:
        """Whether a sample's result depends on no other sample and on no draw.

        That is known of modules that consist of torch's layers and of those of this package.
        """
        return all(
            type(part).__module__.startswith(("torch.nn.", "edgefed.learn.networks."))
            and not isinstance(part, BatchNorm)
            and not (isinstance(part, Dropout) and part.p > 0)
            and not (isinstance(part, nn.RNNBase) and part.dropout > 0)
            for part in self.module.modules()
        )

    def probe_inputs(self) -> torch.Tensor:
        """Return a batch of two inputs of zeros, where the module's weights are."""
        part = next(self.module.parameters())
        kind = part.dtype if self.vocabulary is None else torch.int64
        return torch.zeros(2, *self.shape, dtype=kind, device=part.device)

    def halves(self, split: int) -> tuple[Model, Model]:
        """Return the first ``split`` layers and the others as models, which share all parts.

        The first one's ``classes`` are the numbers in one hidden state; the second one's ``shape``
        is a hidden state's. Names of weights are as here; see ``splitting``.

        Raises:
            DataError: ``model.split``: there is no such split.
        """
        if split not in self._halves:
            front, rear = halves(self.module, split)
            shape = _output_shape(self, front)
            frozen = frozenset(self.frozen_names)
            encoder = Model(front, self.shape, prod(shape), self.vocabulary, frozen=frozen)
            self._halves[split] = encoder, Model(rear, shape, self.classes, frozen=frozen)
        return self._halves[split]

    def encode(self, params: Params, inputs: torch.Tensor, split: int) -> torch.Tensor:
        """Return the hidden states (batch, …) behind the first ``split`` layers.

        Raises:
            DataError: ``model.split``: there is no such split.
        """
        return self.halves(split)[0].forward(params, inputs)

    def decode(self, params: Params, hidden: torch.Tensor, split: int) -> torch.Tensor:
        """Return the logits (batch, classes) of hidden states behind the first ``split`` layers.

        Raises:
            DataError: ``model.split``: there is no such split.
        """
        return self.halves(split)[1].forward(params, hidden)

    def free_weights(self, rebuilt: Callable[[], Model], *, in_place: bool) -> None:
        """Free the memory of the module's trained parameters, whose values are then undefined.

        ``forward`` lends the module other weights. On another device than a CPU nothing is freed.

        Args:
            rebuilt: makes the model again, for ``weights``.
            in_place: whether nothing else uses the parameters' memory. Code of a user's own may
                keep it, which then stays as it is.
        """
        self._rebuilt = rebuilt
        for name, part in self.module.named_parameters():
            if name in self.names and part.device.type == "cpu" and part.is_contiguous():
                part.data = part.data if in_place else torch.empty_like(part.data)
                discard_pages(part.data_ptr(), part.numel() * part.element_size())

    def weights(self) -> Tensors:
        """Return a copy of the initial trained arrays, in the order of ``names``."""
        if self._rebuilt is not None:
            return self._rebuilt().weights()
        state = self.module.state_dict()
        return {
            name: np.array(download(state[name], "model").numpy(), order="C") for name in self.names
        }

    def check(self, weights: Tensors) -> None:
        """Check that ``weights`` are this model's: every name, every shape, nothing else.

        Raises:
            DataError: they are another model's.
        """
        self._check(weights, self.names)

    def _check(self, weights: Tensors, names: tuple[str, ...]) -> None:
        """Check that arrays have these names, with the shapes of this model's."""
        state = self.module.state_dict()
        wanted = {name: tuple(state[name].shape) for name in names}
        given = {name: tuple(array.shape) for name, array in weights.items()}
        if given == wanted:
            return
        wrong = [name for name in {**wanted, **given} if given.get(name) != wanted.get(name)]
        name = wrong[0]
        raise DataError(
            f"The weights are not this model's: {name} is {given.get(name, 'missing')},"
            f" not {wanted.get(name, 'a part of the model')}.",
            code="model.weights",
            hint="the run and the device must use the same model, input shape and classes",
        )


def module_bytes(module: nn.Module) -> int:
    """Return the bytes of a module's weights and buffers; tied weights count once."""
    tensors = [*module.parameters(), *module.buffers()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _output_shape(model: Model, front: nn.Module) -> Shape:
    """Return the shape of the output of a model's front part for one input."""
    part = next(model.module.parameters())
    kind = part.dtype if model.vocabulary is None else torch.int64
    was_training = model.module.training
    model.module.eval()
    with torch.no_grad():
        hidden = front(torch.zeros(1, *model.shape, dtype=kind, device=part.device))
    model.module.train(was_training)
    return tuple(hidden.shape[1:])
