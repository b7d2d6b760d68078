"""The disposable process that alone touches a device, and the client that drives it."""
