"""Every GPU kernel on a device: is it right, and how fast is it beside its peers."""
