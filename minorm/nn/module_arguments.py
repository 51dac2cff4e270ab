"""Texts for `documented_methods`: the arguments of a Module's methods."""

from __future__ import annotations

METHODS = {
    # attributes
    "name": "the name of the attribute, without a dot",
    "param": "the Parameter, or None",
    "tensor": "the Tensor, or None, which only reserves the name",
    "persistent": "False keeps the buffer out of the state_dict",
    "module": "the Module, or None",
    # hooks
    "hook": "the function to call",
    "prepend": "True calls the hook before the hooks that are already registered",
    "with_kwargs": "True also passes the named arguments, after args",
    # walks over the tree
    "prefix": "the beginning of the names; a dot follows it",
    "state_dict.prefix": "the beginning of the keys; a dot follows it, unless it ends with one",
    "recurse": "True includes all modules below, False only this module",
    "target": 'a dotted path such as "layer1.0.conv"; "" is the module itself',
    "get_parameter.target": 'the name of the parameter in the state_dict, such as "layer1.0.conv.weight"',
    "get_buffer.target": 'the name of the buffer, such as "layer1.0.bn.running_mean"',
    "fn": "a function of a module; its result is not used",
    # state
    "state_dict": "Tensors, NumPy arrays, or anything else that np.asarray takes, by key",
    "destination": "a dict to add to, which is returned; None makes a new one",
    "keep_vars": "True returns the Parameters themselves, in the graph",
    "strict": "False accepts missing and unexpected keys, and reports them in the result",
    "assign": "True stores the given arrays themselves, whose type may differ",
    "state": "the value that `get_extra_state` returned",
    # modes
    "mode": "True for training, False for evaluation",
    "requires_grad": "True collects gradients, False does not",
    "set_to_none": "True sets the gradients to None, False fills them with zeros",
    "device": 'the device to which the module moves, "cpu", "cuda" or "cuda:1"; None keeps the device',
    "cuda.device": "the number or name of the GPU; None is the current one",
    "dtype": "the float type to which the module is converted; None keeps the type",
    "non_blocking": "accepted but ignored",
    "memory_format": "accepted but ignored: parameters keep their order in memory",
    "args": "device and dtype in any order",
    "forward.args": "the arguments that the module is called with",
    "forward.kwargs": "the named arguments that the module is called with",
}
