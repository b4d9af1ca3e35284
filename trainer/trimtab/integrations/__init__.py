"""Frameworks that own the training loop: a callback each, which attaches the model and the optimizer that they made.

Each module imports its framework, which Trimtab does not install. accelerate needs no callback: after
``accelerator.prepare`` its script calls ``trimtab.attach(model, optimizer)``, and `accelerate.keep_exchange` where it
saves its state.
"""
