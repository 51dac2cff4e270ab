"""What the arguments of a Module's methods mean: texts for `documented_methods`."""

from __future__ import annotations

METHODS = {
    # attributes
    "name": "of the attribute, without a dot",
    "param": "the Parameter, or None",
    "tensor": "the Tensor, or None, which keeps the name for an absent one",
    "persistent": "False keeps it out of the state_dict",
    "module": "the Module, or None",
    # hooks
    "hook": "the function to call",
    "prepend": "True calls it before the hooks that are there already",
    "with_kwargs": "True hands it the named arguments as well, after args",
    # walks over the tree
    "prefix": "what the names begin with, and a dot",
    "state_dict.prefix": "what the keys begin with; a dot follows, unless it ends with one",
    "recurse": "True goes through all modules below, False stays at this one",
    "target": 'a dotted path, as "layer1.0.conv"; "" is the module itself',
    "get_parameter.target": 'its name in the state_dict, as "layer1.0.conv.weight"',
    "get_buffer.target": 'its name, as "layer1.0.bn.running_mean"',
    "fn": "a function of a module; what it returns is not used",
    # state
    "state_dict": "by key Tensors, NumPy arrays, or what else np.asarray takes",
    "destination": "a dict to add to, which is returned; None makes one",
    "keep_vars": "True gives the Parameters themselves, in the graph",
    "strict": "False accepts missing and unexpected keys, and reports them in the result",
    "assign": "True takes the arrays themselves, whose type may then be another one",
    "state": "what `get_extra_state` gave",
    # modes
    "mode": "True for training, False for evaluation",
    "requires_grad": "True collects gradients, False does not",
    "set_to_none": "False fills them with zeros instead",
    "device": 'where to move, "cpu", "cuda" or "cuda:1"; None stays',
    "cuda.device": "number or name of the GPU; None is the current one",
    "dtype": "the float type to convert to; None keeps it",
    "non_blocking": "accepted but ignored",
    "memory_format": "accepted but ignored: parameters keep their order in memory",
    "args": "device and dtype in any order",
    "forward.args": "what the module is called with",
    "forward.kwargs": "the same by name",
}
