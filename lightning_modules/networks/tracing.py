"""A model as a graph (torch.fx), cut at the output of one of its submodules."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from sweetspot.lightning_modules.networks.counting import modes_kept

BATCHES = (2, 3)  # sizes at which a model is looked at: what changes between them depends on the batch
SEVERAL = (nn.MultiheadAttention, nn.RNNBase)
ENDS = ("placeholder", "output")
CONSTANT = "_tensor_constant"  # what torch.fx calls tensors that a forward pass makes out of nothing


@dataclass
class Called:
    """One call of a submodule.

    Args:
        output: what it returned: a proxy of a node, or something that holds several of them.
        last: the last node that there was by then.
    """

    output: Any
    last: fx.Node | None


class CallTracer(fx.Tracer):
    """Traces a model and remembers what each submodule returned."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, list[Called]] = {}

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        output = super().call_module(m, forward, args, kwargs)
        last = next(iter(reversed(self.graph.nodes)), None)
        self.calls.setdefault(self.path_of_module(m), []).append(Called(output, last))
        return output


class Sizes(fx.Interpreter):
    """Runs a graph and keeps every number, every shape, how long every tensor is, and of what kind anything else."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.kept: dict[fx.Node, Any] = {}
        self.lengths: dict[fx.Node, int] = {}
        self.others: dict[fx.Node, str] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, int | float | torch.Size):
            self.kept[n] = value
        elif isinstance(value, Tensor) and value.ndim:
            self.lengths[n] = len(value)
        if not isinstance(value, Tensor):
            self.others[n] = type(value).__name__
        return value


class Traced:
    """The graph of a model, which is the same in training and in evaluation.

    Args:
        model: whose graph it is.
        tracer: that has traced it.
        graph: what came of it.
        example: some inputs; with them the server may work out sizes that the client's part has.
    """

    def __init__(self, model: nn.Module, tracer: CallTracer, graph: fx.Graph, example: Tensor | None) -> None:
        self.model, self.tracer, self.graph = model, tracer, graph
        self.order = {node: number for number, node in enumerate(graph.nodes)}
        self.fixed: set[fx.Node] = set()  # nodes that do not depend on the input
        for node in graph.nodes:
            if node.op != "placeholder" and all(each in self.fixed for each in node.all_input_nodes):
                self.fixed.add(node)
        self.result = next(node for node in reversed(graph.nodes) if node.op == "output")
        self.seen: list[Sizes] = []
        if example is not None and len([node for node in graph.nodes if node.op == "placeholder"]) == 1:
            whole = fx.GraphModule(model, graph)
            for count in BATCHES:
                self.seen.append(Sizes(whole))
                self.seen[-1].run(batch_of(example, count))

    def count(self, name: str) -> int:
        """How many times a submodule is called."""
        return len(self.tracer.calls.get(name, []))

    def returned(self, name: str) -> str:
        """What the submodule returns, where that is no tensor; else empty."""
        output = self.tracer.calls[name][0].output
        if not isinstance(output, fx.Proxy):
            return type(output).__name__
        if isinstance(self.model.get_submodule(name), SEVERAL):  # which torch.fx does not look into
            return "tuple"
        return next((seen.others[output.node] for seen in self.seen if output.node in seen.others), "")

    def position(self, name: str) -> int:
        """Where in the graph the submodule is done."""
        last = self.tracer.calls[name][0].last
        return -1 if last is None else self.order[last]

    def node(self, name: str) -> fx.Node:
        """The node that the submodule returned."""
        node: fx.Node = self.tracer.calls[name][0].output.node
        return node

    def place(self, name: str) -> Any:
        """What two names share that mean the same cut."""
        return self.node(name)

    def is_end(self, name: str) -> bool:
        """Whether the model returns what the submodule returns."""
        return self.result.args[0] is self.node(name)

    # ------------------------------------------------------------------ what crosses

    def needed(self, name: str) -> Iterator[fx.Node]:
        """The server's nodes, the last one first."""
        wanted, source, after = {self.result}, self.node(name), self.position(name)
        for node in reversed(self.graph.nodes):
            if self.order[node] > after and (node in wanted or has_effect(node, self.model)):
                yield node
                wanted |= {each for each in node.all_input_nodes if each is not source}

    def crossing(self, name: str) -> list[str]:
        """What the server would need beside the submodule's output, in words."""
        source, after = self.node(name), self.position(name)
        used = {each for node in self.needed(name) for each in node.all_input_nodes if self.order[each] <= after}
        others = [
            each
            for each in used
            if each is not source and each not in self.fixed and self.worked_out(each, source) is None
        ]
        return list(dict.fromkeys(map(self.described, sorted(others, key=self.order.__getitem__))))

    def described(self, node: fx.Node) -> str:
        """A node by the submodule that made it."""
        if node.op == "placeholder":
            return "the input"
        if node.op == "call_module":
            return str(node.target)
        stack = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
        what = getattr(node.target, "__name__", str(node.target)).strip("_")
        return f"{what} of {stack[-1]}" if stack and stack[-1] else what

    def worked_out(self, node: fx.Node, source: fx.Node) -> Any:
        """A number or a shape of the client's part that the server knows, with BATCHES for the length of z; or None."""
        if not all(node in seen.kept for seen in self.seen) or not self.seen:
            return None
        values = [seen.kept[node] for seen in self.seen]
        if not isinstance(values[0], torch.Size):
            return self.size(values, source)
        if len({len(value) for value in values}) > 1:
            return None
        sizes = [self.size(list(each), source) for each in zip(*values, strict=True)]
        return None if any(size is None for size in sizes) else tuple(sizes)

    def size(self, values: list[Any], source: fx.Node) -> Any:
        """A number for two batches: itself where it is the same, BATCHES where it is the length of z, else None."""
        if values[0] == values[1]:
            return values[0]
        lengths = [seen.lengths.get(source) for seen in self.seen]
        return BATCHES if values == list(BATCHES) == lengths else None

    # ------------------------------------------------------------------ the two parts

    def parts(self, name: str) -> tuple[nn.Module, nn.Module]:
        """The client's and the server's part, with the model's own weights under the model's own names."""
        return self.client(name), self.server(name)

    def client(self, name: str) -> nn.Module:
        """From the input to the submodule's output."""
        graph, until = fx.Graph(), self.position(name)
        twins: dict[fx.Node, fx.Node] = {}
        for node in self.graph.nodes:
            if self.order[node] <= until:
                twins[node] = graph.node_copy(node, twins.__getitem__)
        graph.output(twins[self.node(name)])
        return self.module(graph, "Encoder")

    def server(self, name: str) -> nn.Module:
        """From the submodule's output to the logits."""
        graph, source, nodes = fx.Graph(), self.node(name), set(self.needed(name))
        given = z = graph.placeholder("z")
        if any(has_effect(node, self.model) for node in nodes):
            z = graph.call_method("clone", (z,))  # z belongs to whoever gave it
        twins: dict[fx.Node, Any] = {source: z}

        def twin(node: fx.Node) -> Any:
            if node not in twins and node in self.fixed:
                twins[node] = graph.node_copy(node, twin)
            elif node not in twins:
                known = self.worked_out(node, source)
                length = graph.call_method("size", (given, 0))
                sizes = [length if each is BATCHES else each for each in (known if is_shape(known) else (known,))]
                twins[node] = tuple(sizes) if is_shape(known) else sizes[0]
            return twins[node]

        for node in self.graph.nodes:
            if node in nodes:
                twins[node] = graph.node_copy(node, twin)
        return self.module(graph, "Head")

    def module(self, graph: fx.Graph, name: str) -> nn.Module:
        """A module that runs a graph."""
        graph.eliminate_dead_code(lambda node: node.op in ENDS or has_effect(node, self.model))
        graph.lint()
        module = fx.GraphModule(self.model, graph, class_name=name)
        for each in module.modules():
            if type(each) is nn.Module:  # torch.fx makes these to hold the others
                each.training = self.model.training
        return module

    def client_parameters(self, name: str) -> list[nn.Parameter]:
        """The client's weights."""
        return list(self.client(name).parameters())


def is_shape(known: Any) -> bool:
    """Whether what the server knows is a shape, and not one size."""
    return isinstance(known, tuple) and known is not BATCHES


def batch_of(example: Tensor, count: int) -> Tensor:
    """So many inputs, the example's over and over."""
    return example.repeat(-(-count // len(example)), *[1] * (example.ndim - 1))[:count]


def has_effect(node: fx.Node, model: nn.Module) -> bool:
    """Whether a node changes what it is given, in place."""
    if node.op == "call_module":
        return bool(getattr(model.get_submodule(str(node.target)), "inplace", False))
    if node.op not in ("call_function", "call_method"):
        return False
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    is_named_so = name.endswith("_") and not name.endswith("__")
    is_operator = name in ("setitem", "__setitem__") or (name.startswith("i") and name[1:] in OPERATORS)
    return is_named_so or is_operator or bool(node.kwargs.get("inplace"))


OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")


def traced(model: nn.Module, example: Tensor | None) -> Traced | None:
    """The model's graph; None where it has none, or another in training than in evaluation."""
    found = []
    try:
        for training in (False, True):
            with modes_kept(model):
                tracer = CallTracer()
                found.append((tracer, tracer.trace(model.train(training))))
        same = str(found[0][1]) == str(found[1][1])
        with modes_kept(model), torch.no_grad():
            return Traced(model.eval(), *found[0], example) if same else None
    except Exception:  # whatever a model does that torch.fx cannot follow
        return None


@contextlib.contextmanager
def constants_removed(model: nn.Module) -> Iterator[None]:
    """The model without what torch.fx leaves in it."""
    try:
        yield
    finally:
        for name in [each for each in vars(model) if each.startswith(CONSTANT)]:
            delattr(model, name)
