"""Gradient descent, with torch's hooks around each step of any optimizer."""

_before_step = []
_after_step = []


def register_optimizer_step_pre_hook(hook):
    _before_step.append(hook)


def register_optimizer_step_post_hook(hook):
    _after_step.append(hook)


class SGD:
    def __init__(self, parameters, lr=0.001):
        self.parameters, self.lr = list(parameters), lr

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    def step(self):
        for hook in _before_step:
            hook(self, (), {})
        for parameter in self.parameters:
            for index, slope in enumerate(parameter.grad.values):
                parameter.values[index] -= self.lr * slope
        for hook in _after_step:
            hook(self, (), {})
