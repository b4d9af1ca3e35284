"""Frameworks that own the training loop: a callback each, which attaches the model and the optimizer that they made.

Each module imports its framework, which Trimtab does not install. accelerate needs none of this: after
``accelerator.prepare`` its script calls ``trimtab.attach(model, optimizer)``.
"""
