"""Descriptions of the arguments of a Module's methods. The decorator `documented_methods` adds them to docstrings."""

from __future__ import annotations

METHODS = {
    # attributes
    "name": "the name of the attribute, without a dot",
    "param": "the Parameter, or None",
    "tensor": "the Tensor; if None, the attribute exists but there is no buffer",
    "persistent": "False leaves the buffer out of the state_dict",
    "module": "the Module, or None",
    # hooks
    "hook": "the function to call",
    "prepend": "True calls the hook before all hooks registered so far",
    "with_kwargs": "True also passes the named arguments, after args",
    # walks over the tree
    "prefix": "the beginning of the names, to which a dot is added",
    "state_dict.prefix": "the beginning of the keys; a dot is added unless prefix ends with a dot",
    "recurse": "True includes all modules below this module, False only this module",
    "target": 'a dotted path such as "layer1.0.conv"; "" is the module itself',
    "get_parameter.target": 'the name of the parameter in the state_dict, such as "layer1.0.conv.weight"',
    "get_buffer.target": 'the name of the buffer, such as "layer1.0.bn.running_mean"',
    "fn": "a function of a module; its result is not used",
    # state
    "state_dict": "a dict with Tensors, NumPy arrays, or other objects that np.asarray takes",
    "destination": "a dict to which the entries are added, and which is returned; None makes a new dict",
    "keep_vars": "True returns the Parameters themselves, False detached Tensors",
    "strict": "False accepts missing and unexpected keys, and reports them in the result",
    "assign": "True uses the given arrays instead of copying them; their type may then differ",
    "state": "the value that `get_extra_state` returned",
    # modes
    "mode": "True for training, False for evaluation",
    "requires_grad": "True collects gradients, False does not",
    "set_to_none": "True sets the gradients to None, False fills them with zeros",
    "device": 'the device to move to, "cpu", "cuda" or "cuda:1"; None does not move',
    "cuda.device": "the number or name of the GPU; None is the current one",
    "dtype": "the float type to convert to; None keeps the type",
    "non_blocking": "accepted but ignored",
    "memory_format": (
        "the order in memory on a GPU, such as minorm.channels_last, for tensors with as many axes as the order; None "
        "keeps the order"
    ),
    "args": "device and dtype in any order",
    "forward.args": "the arguments that the module is called with",
    "forward.kwargs": "the named arguments that the module is called with",
}
